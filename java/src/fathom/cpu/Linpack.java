package fathom.cpu;

import fathom.Clock;
import fathom.Load;
import fathom.WrongResult;

/** LINPACK; see crates/workload/src/cpu/linpack.rs. The matrix is an array of columns, as in the published Java. */
final class Linpack implements Load {
    private static final double RESIDUAL = 16.0;

    private final int n;
    private final long[] known;
    private final double[][] a;
    private final double[] b;
    private final int[] pivot;
    private long first;
    private long solutions;

    Linpack(int n, long[] known) {
        this.n = n;
        this.known = known;
        a = new double[n][n + 1];
        b = new double[n];
        pivot = new int[n];
    }

    private double generate() {
        int x = 1325;
        double largest = 0;
        java.util.Arrays.fill(b, 0);
        for (double[] column : a) {
            for (int i = 0; i < n; i++) {
                x = 3125 * x % 65536;
                column[i] = (x - 32768.0) / 16384.0;
                largest = Math.max(largest, column[i]);
                b[i] += column[i];
            }
        }
        return largest;
    }

    private static int indexOfLargest(double[] x, int from, int to) {
        int best = from;
        double largest = Math.abs(x[from]);
        for (int i = from + 1; i < to; i++) {
            if (Math.abs(x[i]) > largest) {
                largest = Math.abs(x[i]);
                best = i;
            }
        }
        return best;
    }

    /** y += t x, from one index to another. */
    private static void addScaled(double t, double[] x, double[] y, int from, int to) {
        if (t == 0.0) {
            return;
        }
        for (int i = from; i < to; i++) {
            y[i] += t * x[i];
        }
    }

    private boolean factor() {
        for (int k = 0; k < n - 1; k++) {
            double[] column = a[k];
            int l = indexOfLargest(column, k, n);
            pivot[k] = l;
            if (column[l] == 0.0) {
                return false;
            }
            if (l != k) {
                double t = column[l];
                column[l] = column[k];
                column[k] = t;
            }
            double scale = -1.0 / column[k];
            for (int i = k + 1; i < n; i++) {
                column[i] *= scale;
            }
            for (int j = k + 1; j < n; j++) {
                double[] other = a[j];
                double t = other[l];
                if (l != k) {
                    other[l] = other[k];
                    other[k] = t;
                }
                addScaled(t, column, other, k + 1, n);
            }
        }
        pivot[n - 1] = n - 1;
        return a[n - 1][n - 1] != 0.0;
    }

    private void substitute() {
        for (int k = 0; k < n - 1; k++) {
            int l = pivot[k];
            double t = b[l];
            if (l != k) {
                b[l] = b[k];
                b[k] = t;
            }
            addScaled(t, a[k], b, k + 1, n);
        }
        for (int k = n - 1; k >= 0; k--) {
            b[k] /= a[k][k];
            addScaled(-b[k], a[k], b, 0, k);
        }
    }

    private boolean solve() {
        if (!factor()) {
            return false;
        }
        substitute();
        return true;
    }

    @Override
    public String name() {
        return "linpack";
    }

    @Override
    public String hotMethod() {
        return "fathom.cpu.Linpack.addScaled";
    }

    @Override
    public double work() {
        double d = n;
        return 2.0 / 3.0 * d * d * d + 2.0 * d * d;
    }

    @Override
    public void run(long inner, Clock clock, long[] time) throws WrongResult {
        long ns = 0;
        for (long i = 0; i < inner; i++) {
            generate();
            long start = clock.now();
            boolean regular = solve();
            ns += clock.now() - start;
            if (i == 0) {
                time[0] = start;
            }
            if (!regular) {
                throw new WrongResult("a pivot was zero, though the matrix is regular");
            }
            long sum = Cpu.checksum(b);
            if (solutions++ == 0) {
                first = sum;
            } else if (sum != first) {
                throw new WrongResult("solution " + solutions + " is another than the first one's");
            }
        }
        time[1] = ns;
    }

    @Override
    public String check() throws WrongResult {
        run(1, new Clock(0), new long[2]);
        double[] x = b.clone();
        double largest = generate();
        double[] rest = new double[n];
        double most = 0;
        double off = 0;
        double residual = 0;
        for (int i = 0; i < n; i++) {
            rest[i] = -b[i];
        }
        for (int j = 0; j < n; j++) {
            for (int i = 0; i < n; i++) {
                rest[i] += a[j][i] * x[j];
            }
            most = Math.max(most, Math.abs(x[j]));
            off = Math.max(off, Math.abs(x[j] - 1));
        }
        for (double r : rest) {
            residual = Math.max(residual, Math.abs(r));
        }
        residual /= n * largest * most * Math.ulp(1.0);
        long sum = Cpu.checksum(x);
        String text = String.format(java.util.Locale.ROOT,
                "normalised residual %.3f, x within %.1e of 1, checksum %016x", residual, off, sum);
        if (!(residual < RESIDUAL)) {
            throw new WrongResult(text + ": the residual must be less than " + RESIDUAL);
        }
        if (known != null && known[0] != sum) {
            throw new WrongResult(text + String.format(", known %016x", known[0]));
        }
        return text;
    }

    @Override
    public String left() {
        return solutions + " solutions, all the same";
    }
}
