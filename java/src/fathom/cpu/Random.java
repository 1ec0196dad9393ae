package fathom.cpu;

/** Marsaglia's subtractive generator; see `struct lagged` in crates/workload/src/cpu/c/scimark.c. */
final class Random {
    private final int[] x = new int[17];
    private int i = 4;
    private int j = 16;

    Random(int seed) {
        int value = seed % 2 == 0 ? seed - 1 : seed;
        for (int k = 0; k < x.length; k++) {
            value = (value * 9069) & 0x7fffffff;
            x[k] = value;
        }
    }

    /** Synchronized, as SciMark defines it: the cost of an uncontended lock is part of its Monte Carlo. */
    synchronized double next() {
        int k = x[i] - x[j];
        if (k < 0) {
            k += 0x7fffffff;
        }
        x[j] = k;
        i = i == 0 ? 16 : i - 1;
        j = j == 0 ? 16 : j - 1;
        return (1.0 / 2147483647.0) * k;
    }

    double[] vector(int n) {
        double[] values = new double[n];
        for (int k = 0; k < n; k++) {
            values[k] = next();
        }
        return values;
    }
}
