package fathom;

import java.io.PrintStream;

/** The result of a series, and its output format. */
public final class Measured {
    private final Load[] loads;
    private final String unit;
    private final long inner;
    private final long[] units;
    private final long[][] starts;
    private final long[][] durations;
    private final String left;
    private final String by;

    Measured(Load[] loads, String unit, long inner, long[] units, long[][] starts, long[][] durations, String left,
            String by) {
        this.loads = loads;
        this.unit = unit;
        this.inner = inner;
        this.units = units;
        this.starts = starts;
        this.durations = durations;
        this.left = left;
        this.by = by;
    }

    /** The methods that take the time, separated by commas. */
    public String[] hotMethod() {
        String[] methods = new String[loads.length];
        for (int i = 0; i < loads.length; i++) {
            methods[i] = loads[i].hotMethod();
        }
        return methods;
    }

    public void print(PrintStream out) {
        double sum = 0;
        double[] work = new double[loads.length];
        for (int i = 0; i < loads.length; i++) {
            work[i] = loads[i].work() * units[i];
            sum += work[i];
        }
        out.print(Json.mark("inner", Long.toString(inner)));
        out.print(Json.mark("result", left));
        int iterations = durations[0].length;
        long now = starts[0][iterations - 1];
        for (int i = 0; i < loads.length && loads.length > 1; i++) {
            out.print(Json.sample("work." + loads[i].name(), unit, now, work[i]));
        }
        out.print(Json.sample("work", unit, now, sum));
        for (int iteration = 0; iteration < iterations; iteration++) {
            double rates = 0;
            for (int i = 0; i < loads.length; i++) {
                long ns = durations[i][iteration];
                rates += work[i] / Math.max(1, ns);
                if (loads.length > 1) {
                    out.print(Json.sample("iteration." + loads[i].name(), "ns", starts[i][iteration], ns));
                }
            }
            // For several loads, the time in which all the work would be done at the mean of their rates; for one, its
            // own time.
            double ns = loads.length > 1 ? sum / (rates / loads.length) : durations[0][iteration];
            out.print(Json.sample("iteration", "ns", starts[0][iteration], ns));
        }
        out.print("{\"verified\":true,\"by\":" + Json.text(by) + "}\n");
    }
}
