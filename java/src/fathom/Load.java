package fathom;

/** A kernel with its data. */
public interface Load {
    /** Its name, if there are several. */
    String name();

    /** The method that takes nearly all the time, as `Class.method`: the one that the proof of the mode looks for. */
    String hotMethod();

    /** Operations in one unit, as the benchmark's definition counts them. */
    double work();

    /** Executes `inner` units, and returns start and duration in ns: `time[0]`, `time[1]`. */
    void run(long inner, Clock clock, long[] time) throws WrongResult;

    /** Checks the kernel against known results, on fresh data; returns what was checked. */
    String check() throws WrongResult;

    /** Checks the state that the timed runs left behind, and returns a description of it. */
    String left() throws WrongResult;
}
