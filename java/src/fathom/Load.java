package fathom;

/** A kernel on its data. */
public interface Load {
    /** What it is called among several. */
    String name();

    /** The method in which nearly all the time goes, as `Class.method`: what the proof of the mode looks for. */
    String hotMethod();

    /** Operations in one unit, as the benchmark's definition counts them. */
    double work();

    /** Does so many units, and returns begin and duration in ns: `time[0]`, `time[1]`. */
    void run(long inner, Clock clock, long[] time) throws WrongResult;

    /** Checks the kernel against what is known of it, on fresh data; says what was checked. */
    String check() throws WrongResult;

    /** Checks what the timed runs left behind, and says what it is. */
    String left() throws WrongResult;
}
