package fathom.cpu;

import fathom.Clock;
import fathom.Load;
import fathom.WrongResult;
import java.util.Locale;

/** SciMark 2's kernels; see crates/workload/src/cpu/scimark.rs, and c/scimark.c for the definition of each. */
final class SciMark {
    static final int SEED = 101010;
    private static final int SOR_STEPS = 10;
    private static final int SAMPLES = 100_000;
    private static final double OMEGA = 1.25;

    private SciMark() {}

    static Load load(String kernel, long[] size, long[] known) {
        Random random = new Random(SEED);
        switch (kernel) {
            case "fft":
                return new Fft(random.vector(2 * (int) size[0]), known[0]);
            case "sor":
                return new Sor((int) size[1], random, known[1]);
            case "montecarlo":
                return new MonteCarlo(known[2]);
            case "sparse":
                return new Sparse((int) size[2], (int) size[3], random, known[3]);
            case "lu":
                return new Lu((int) size[4], random, known[4]);
            default:
                throw new IllegalArgumentException("no such kernel: " + kernel);
        }
    }

    /** Returns the text with the checksum, which must be the known one. */
    private static String compare(String text, long sum, long known) throws WrongResult {
        String told = text + String.format(", checksum %016x", sum);
        if (sum != known) {
            throw new WrongResult(told + String.format(", known %016x", known));
        }
        return told;
    }

    /** Root of the mean squared difference. */
    private static double difference(double[] a, double[] b) {
        double sum = 0;
        for (int i = 0; i < a.length; i++) {
            sum += (a[i] - b[i]) * (a[i] - b[i]);
        }
        return Math.sqrt(sum / a.length);
    }

    private static String small(double value) {
        return String.format(Locale.ROOT, "%.1e", value);
    }

    /** What the five have in common. */
    private abstract static class Kernel implements Load {
        final long known;
        private final String name;

        /** The name is passed instead of being taken from the class: dexing drops the simple names of inner classes. */
        Kernel(String name, long known) {
            this.name = name;
            this.known = known;
        }

        abstract void work(long inner) throws WrongResult;

        @Override
        public String name() {
            return name;
        }

        @Override
        public void run(long inner, Clock clock, long[] time) throws WrongResult {
            time[0] = clock.now();
            work(inner);
            time[1] = clock.now() - time[0];
        }
    }

    private static final class Fft extends Kernel {
        private final double[] first;
        private final double[] data;
        private long pairs;

        Fft(double[] first, long known) {
            super("fft", known);
            this.first = first;
            data = first.clone();
        }

        static void transform(double[] data, int direction) {
            int n = data.length / 2;
            for (int i = 0, j = 0; i < n - 1; i++) {
                if (i < j) {
                    double re = data[2 * i];
                    double im = data[2 * i + 1];
                    data[2 * i] = data[2 * j];
                    data[2 * i + 1] = data[2 * j + 1];
                    data[2 * j] = re;
                    data[2 * j + 1] = im;
                }
                int bit = n >> 1;
                while (bit <= j) {
                    j -= bit;
                    bit >>= 1;
                }
                j += bit;
            }
            double s = 0.0;
            double c = -1.0;
            for (int half = 1; half < n; half *= 2) {
                double nextC = half == 1 ? 0.0 : Math.sqrt((1.0 + c) / 2.0);
                double nextS = half == 1 ? 1.0 : s / (2.0 * nextC);
                double versine = 2.0 * nextS * nextS;
                double sine = direction * s;
                double wRe = 1.0;
                double wIm = 0.0;
                for (int b = 0; b < n; b += 2 * half) {
                    int i = 2 * b;
                    int j = 2 * (b + half);
                    double re = data[j];
                    double im = data[j + 1];
                    data[j] = data[i] - re;
                    data[j + 1] = data[i + 1] - im;
                    data[i] += re;
                    data[i + 1] += im;
                }
                for (int a = 1; a < half; a++) {
                    double turned = wRe - sine * wIm - versine * wRe;
                    wIm = wIm + sine * wRe - versine * wIm;
                    wRe = turned;
                    for (int b = 0; b < n; b += 2 * half) {
                        int i = 2 * (b + a);
                        int j = 2 * (b + a + half);
                        double re = wRe * data[j] - wIm * data[j + 1];
                        double im = wRe * data[j + 1] + wIm * data[j];
                        data[j] = data[i] - re;
                        data[j + 1] = data[i + 1] - im;
                        data[i] += re;
                        data[i + 1] += im;
                    }
                }
                s = nextS;
                c = nextC;
            }
            if (direction > 0) {
                double norm = 1.0 / n;
                for (int i = 0; i < data.length; i++) {
                    data[i] *= norm;
                }
            }
        }

        @Override
        void work(long inner) {
            for (long i = 0; i < inner; i++) {
                transform(data, -1);
                transform(data, 1);
            }
            pairs += inner;
        }

        @Override
        public double work() {
            double n = data.length / 2;
            return (5.0 * n - 2.0) * log2(data.length / 2) + 2.0 * (n + 1.0);
        }

        private static int log2(int n) {
            return Integer.numberOfTrailingZeros(n);
        }

        @Override
        public String hotMethod() {
            return "fathom.cpu.SciMark$Fft.transform";
        }

        @Override
        public String check() throws WrongResult {
            double[] copy = first.clone();
            transform(copy, -1);
            long sum = Cpu.checksum(copy);
            transform(copy, 1);
            double off = difference(copy, first);
            String text = "fft: forward and back off by " + small(off);
            if (!(off < 1e-10)) {
                throw new WrongResult(text);
            }
            return compare(text, sum, known);
        }

        @Override
        public String left() throws WrongResult {
            double off = difference(data, first);
            String text = "fft: " + pairs + " times forward and back off by " + small(off);
            if (!(off < (pairs + 1) * Math.sqrt(data.length / 2) * 32 * Math.ulp(1.0))) {
                throw new WrongResult(text);
            }
            return text;
        }
    }

    private static final class Sor extends Kernel {
        private final double[] first;
        private final double[][] grid;
        private long steps;

        Sor(int n, Random random, long known) {
            super("sor", known);
            first = random.vector(n * n);
            grid = new double[n][n];
            fill(grid);
        }

        private void fill(double[][] rows) {
            for (int i = 0; i < rows.length; i++) {
                System.arraycopy(first, i * rows.length, rows[i], 0, rows.length);
            }
        }

        static void relax(double[][] grid, long steps) {
            int n = grid.length;
            double quarter = OMEGA * 0.25;
            double rest = 1.0 - OMEGA;
            for (long step = 0; step < steps; step++) {
                for (int i = 1; i < n - 1; i++) {
                    double[] above = grid[i - 1];
                    double[] row = grid[i];
                    double[] below = grid[i + 1];
                    for (int j = 1; j < n - 1; j++) {
                        row[j] = quarter * (above[j] + below[j] + row[j - 1] + row[j + 1]) + rest * row[j];
                    }
                }
            }
        }

        @Override
        void work(long inner) {
            relax(grid, inner);
            steps += inner;
        }

        @Override
        public double work() {
            double n = grid.length - 1;
            return 6.0 * n * n;
        }

        @Override
        public String hotMethod() {
            return "fathom.cpu.SciMark$Sor.relax";
        }

        private static double[] flat(double[][] rows) {
            double[] all = new double[rows.length * rows.length];
            for (int i = 0; i < rows.length; i++) {
                System.arraycopy(rows[i], 0, all, i * rows.length, rows.length);
            }
            return all;
        }

        @Override
        public String check() throws WrongResult {
            double[][] rows = new double[grid.length][grid.length];
            fill(rows);
            relax(rows, SOR_STEPS);
            return compare("sor: " + SOR_STEPS + " steps", Cpu.checksum(flat(rows)), known);
        }

        @Override
        public String left() throws WrongResult {
            double[] all = flat(grid);
            String text = String.format("sor: checksum %016x after %d steps", Cpu.checksum(all), steps);
            for (double value : all) {
                if (!(value >= -1.0 && value <= 2.0)) {
                    throw new WrongResult(text + ": values outside the border's");
                }
            }
            return text;
        }
    }

    private static final class MonteCarlo extends Kernel {
        private long samples;
        private long within;

        MonteCarlo(long known) {
            super("montecarlo", known);
        }

        static long integrate(long samples) {
            Random random = new Random(SEED);
            long within = 0;
            for (long i = 0; i < samples; i++) {
                double x = random.next();
                double y = random.next();
                if (x * x + y * y <= 1.0) {
                    within++;
                }
            }
            return within;
        }

        @Override
        void work(long inner) throws WrongResult {
            long now = integrate(inner);
            if (samples == inner && now != within) {
                throw new WrongResult("montecarlo: " + now + " points within, " + within + " the time before");
            }
            samples = inner;
            within = now;
        }

        @Override
        public double work() {
            return 4.0;
        }

        @Override
        public String hotMethod() {
            return "fathom.cpu.SciMark$MonteCarlo.integrate";
        }

        @Override
        public String check() throws WrongResult {
            long now = integrate(SAMPLES);
            String text = String.format(
                    Locale.ROOT, "montecarlo: pi %.5f, %d of %d points within", 4.0 * now / SAMPLES, now, SAMPLES);
            if (now != known) {
                throw new WrongResult(text + ", known " + known);
            }
            return text;
        }

        @Override
        public String left() throws WrongResult {
            double pi = 4.0 * within / samples;
            String text = String.format(Locale.ROOT, "montecarlo: pi %.6f of %d points", pi, samples);
            if (!(Math.abs(pi - Math.PI) < 5.0 * 1.6422 / Math.sqrt(samples))) {
                throw new WrongResult(text);
            }
            return text;
        }
    }

    private static final class Sparse extends Kernel {
        private final double[] x;
        private final double[] values;
        private final double[] y;
        private final int[] rows;
        private final int[] columns;

        Sparse(int n, int count, Random random, long known) {
            super("sparse", known);
            int inRow = count / n;
            x = random.vector(n);
            values = random.vector(inRow * n);
            y = new double[n];
            rows = new int[n + 1];
            columns = new int[inRow * n];
            for (int row = 0; row < n; row++) {
                rows[row + 1] = (row + 1) * inRow;
                for (int i = 0; i < inRow; i++) {
                    columns[row * inRow + i] = i * Math.max(1, row / inRow);
                }
            }
        }

        static void multiply(double[] y, double[] values, int[] rows, int[] columns, double[] x, long times) {
            for (long time = 0; time < times; time++) {
                for (int r = 0; r < y.length; r++) {
                    double sum = 0.0;
                    int end = rows[r + 1];
                    for (int i = rows[r]; i < end; i++) {
                        sum += x[columns[i]] * values[i];
                    }
                    y[r] = sum;
                }
            }
        }

        @Override
        void work(long inner) {
            multiply(y, values, rows, columns, x, inner);
        }

        @Override
        public double work() {
            return 2.0 * values.length;
        }

        @Override
        public String hotMethod() {
            return "fathom.cpu.SciMark$Sparse.multiply";
        }

        @Override
        public String check() throws WrongResult {
            java.util.Arrays.fill(y, 0);
            work(1);
            return left();
        }

        @Override
        public String left() throws WrongResult {
            return compare("sparse: y", Cpu.checksum(y), known);
        }
    }

    private static final class Lu extends Kernel {
        private final double[][] a;
        private final double[][] factors;
        private final int[] pivot;

        Lu(int n, Random random, long known) {
            super("lu", known);
            a = new double[n][];
            for (int i = 0; i < n; i++) {
                a[i] = random.vector(n);
            }
            factors = new double[n][n];
            pivot = new int[n];
        }

        static boolean factor(double[][] a, int[] pivot) {
            int n = a.length;
            for (int j = 0; j < n; j++) {
                int best = j;
                double largest = Math.abs(a[j][j]);
                for (int i = j + 1; i < n; i++) {
                    double value = Math.abs(a[i][j]);
                    if (value > largest) {
                        largest = value;
                        best = i;
                    }
                }
                pivot[j] = best;
                if (a[best][j] == 0.0) {
                    return false;
                }
                if (best != j) {
                    double[] t = a[j];
                    a[j] = a[best];
                    a[best] = t;
                }
                double reciprocal = 1.0 / a[j][j];
                for (int i = j + 1; i < n; i++) {
                    a[i][j] *= reciprocal;
                }
                double[] upper = a[j];
                for (int i = j + 1; i < n; i++) {
                    double[] row = a[i];
                    double t = row[j];
                    for (int k = j + 1; k < n; k++) {
                        row[k] -= t * upper[k];
                    }
                }
            }
            return true;
        }

        @Override
        void work(long inner) throws WrongResult {
            for (long time = 0; time < inner; time++) {
                for (int i = 0; i < a.length; i++) {
                    System.arraycopy(a[i], 0, factors[i], 0, a.length);
                }
                if (!factor(factors, pivot)) {
                    throw new WrongResult("lu: a pivot was zero, though the matrix is regular");
                }
            }
        }

        @Override
        public double work() {
            double n = a.length;
            return 2.0 * n * n * n / 3.0;
        }

        @Override
        public String hotMethod() {
            return "fathom.cpu.SciMark$Lu.factor";
        }

        @Override
        public String check() throws WrongResult {
            work(1);
            return left();
        }

        /** Largest |A x - b| of the x that the factors give, over n, for b all ones. */
        private double residual() {
            int n = a.length;
            double[] x = new double[n];
            java.util.Arrays.fill(x, 1.0);
            for (int i = 0; i < n; i++) {
                double t = x[i];
                x[i] = x[pivot[i]];
                x[pivot[i]] = t;
            }
            for (int i = 0; i < n; i++) {
                double sum = 0;
                for (int k = 0; k < i; k++) {
                    sum += factors[i][k] * x[k];
                }
                x[i] -= sum;
            }
            for (int i = n - 1; i >= 0; i--) {
                double sum = 0;
                for (int k = i + 1; k < n; k++) {
                    sum += factors[i][k] * x[k];
                }
                x[i] = (x[i] - sum) / factors[i][i];
            }
            double most = 0;
            for (int i = 0; i < n; i++) {
                double sum = 0;
                for (int k = 0; k < n; k++) {
                    sum += a[i][k] * x[k];
                }
                most = Math.max(most, Math.abs(sum - 1.0));
            }
            return most / n;
        }

        @Override
        public String left() throws WrongResult {
            double residual = residual();
            String text = "lu: residual " + small(residual);
            if (!(residual < 1e-10)) {
                throw new WrongResult(text);
            }
            double[] all = new double[a.length * a.length];
            for (int i = 0; i < a.length; i++) {
                System.arraycopy(factors[i], 0, all, i * a.length, a.length);
            }
            return compare(text, Cpu.checksum(all), known);
        }
    }
}
