package fathom;

/**
 * Checks loads, finds how many units an iteration takes, measures iterations, and checks again. Several loads take
 * turns. See crates/workload/src/cpu/series.rs, which does the same for compiled code.
 *
 * <p>Between two readings of the clock nothing is allocated, and nothing is printed before the end.
 */
public final class Series {
    /** How often a size must take long enough before it is chosen: code that is still being compiled gets faster. */
    private static final int CONFIRMATIONS = 3;

    private static final long MOST = 1L << 40;

    private Series() {}

    public static Measured run(Load[] loads, String unit, Options options, Clock clock) throws WrongResult {
        String before = check(loads);
        long inner = options.number("inner", 0);
        if (inner == 0) {
            inner = size(loads, options.number("min-iteration-ms", 10) * 1_000_000, clock);
        }
        long[] units = units(loads, inner);
        int iterations = (int) options.number("iterations", 30);
        long[][] starts = new long[loads.length][iterations];
        long[][] durations = new long[loads.length][iterations];
        long[] time = new long[2];
        for (int iteration = 0; iteration < iterations; iteration++) {
            for (int i = 0; i < loads.length; i++) {
                loads[i].run(units[i], clock, time);
                starts[i][iteration] = time[0];
                durations[i][iteration] = time[1];
            }
        }
        StringBuilder left = new StringBuilder();
        for (Load load : loads) {
            left.append(left.length() == 0 ? "" : "; ").append(load.left());
        }
        if (!check(loads).equals(before)) {
            throw new WrongResult("the check after the iterations gave other numbers than the one before");
        }
        String by = before + "; the same before and after the iterations";
        return new Measured(loads, unit, inner, units, starts, durations, left.toString(), by);
    }

    private static String check(Load[] loads) throws WrongResult {
        StringBuilder checked = new StringBuilder();
        for (Load load : loads) {
            checked.append(checked.length() == 0 ? "" : "; ").append(load.check());
        }
        return checked.toString();
    }

    /**
     * Returns the number of its own units that each load executes: with several loads, enough for a million operations
     * in each, times `inner`, so that one number sizes kernels whose units are a point and a matrix.
     */
    private static long[] units(Load[] loads, long inner) {
        long[] units = new long[loads.length];
        for (int i = 0; i < loads.length; i++) {
            units[i] = inner * (loads.length == 1 ? 1 : (long) Math.max(1, Math.ceil(1e6 / loads[i].work())));
        }
        return units;
    }

    private static long size(Load[] loads, long least, Clock clock) throws WrongResult {
        long inner = 1;
        int longEnough = 0;
        long[] time = new long[2];
        while (longEnough < CONFIRMATIONS) {
            long[] units = units(loads, inner);
            long shortest = Long.MAX_VALUE;
            for (int i = 0; i < loads.length; i++) {
                loads[i].run(units[i], clock, time);
                shortest = Math.min(shortest, time[1]);
            }
            if (shortest >= least) {
                longEnough++;
            } else if (inner < MOST) {
                inner *= 2;
                longEnough = 0;
            } else {
                throw new WrongResult(inner + " units took less than " + least + " ns: the clock stands still");
            }
        }
        return inner;
    }
}
