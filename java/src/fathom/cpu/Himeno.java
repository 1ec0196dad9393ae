package fathom.cpu;

import fathom.Clock;
import fathom.Load;
import fathom.WrongResult;
import java.util.Locale;

/** Himeno's benchmark; see crates/workload/src/cpu/himeno.rs. */
final class Himeno implements Load {
    private static final int STEPS = 3;

    private final int ni;
    private final int nj;
    private final int nk;
    private final long[] known;
    /** a 0-3, b 0-2, c 0-2, p, source, next, bound. */
    private final float[][] arrays;
    private long steps;
    private float last;

    /** known: the bits of gosa after three steps, and the checksum of the pressure. */
    Himeno(long[] size, long[] known) {
        ni = (int) size[0];
        nj = (int) size[1];
        nk = (int) size[2];
        this.known = known;
        arrays = new float[14][(ni + 1) * (nj + 1) * (nk + 1)];
        begin();
    }

    private void begin() {
        for (int array = 0; array < arrays.length; array++) {
            for (int i = 0; i < ni; i++) {
                float value = 0;
                if (array <= 2 || (array >= 7 && array <= 9) || array == 13) {
                    value = 1;
                } else if (array == 3) {
                    value = 1.0f / 6.0f;
                } else if (array == 10) {
                    value = (float) (i * i) / (float) ((ni - 1) * (ni - 1));
                }
                for (int j = 0; j < nj; j++) {
                    int row = (i * (nj + 1) + j) * (nk + 1);
                    java.util.Arrays.fill(arrays[array], row, row + nk, value);
                }
            }
        }
        steps = 0;
    }

    private void step(long count) {
        float[][] a = arrays;
        for (long n = 0; n < count; n++) {
            last = jacobi(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13]);
        }
        steps += count;
    }

    private float jacobi(float[] a0, float[] a1, float[] a2, float[] a3, float[] b0, float[] b1, float[] b2, float[] c0,
            float[] c1, float[] c2, float[] p, float[] source, float[] next, float[] bound) {
        final int sj = nk + 1;
        final int si = (nj + 1) * sj;
        final float omega = 0.8f;
        float gosa = 0.0f;
        for (int i = 1; i < ni - 1; i++) {
            for (int j = 1; j < nj - 1; j++) {
                final int row = i * si + j * sj;
                for (int at = row + 1; at < row + nk - 1; at++) {
                    float s = a0[at] * p[at + si] + a1[at] * p[at + sj] + a2[at] * p[at + 1]
                            + b0[at] * (p[at + si + sj] - p[at + si - sj] - p[at - si + sj] + p[at - si - sj])
                            + b1[at] * (p[at + sj + 1] - p[at - sj + 1] - p[at + sj - 1] + p[at - sj - 1])
                            + b2[at] * (p[at + si + 1] - p[at - si + 1] - p[at + si - 1] + p[at - si - 1])
                            + c0[at] * p[at - si] + c1[at] * p[at - sj] + c2[at] * p[at - 1] + source[at];
                    float change = (s * a3[at] - p[at]) * bound[at];
                    gosa += change * change;
                    next[at] = p[at] + omega * change;
                }
            }
        }
        for (int i = 1; i < ni - 1; i++) {
            for (int j = 1; j < nj - 1; j++) {
                final int row = i * si + j * sj;
                System.arraycopy(next, row + 1, p, row + 1, nk - 2);
            }
        }
        return gosa;
    }

    @Override
    public String name() {
        return "himeno";
    }

    @Override
    public String hotMethod() {
        return "fathom.cpu.Himeno.jacobi";
    }

    @Override
    public double work() {
        return 34.0 * (ni - 2) * (nj - 2) * (nk - 2);
    }

    @Override
    public void run(long inner, Clock clock, long[] time) {
        time[0] = clock.now();
        step(inner);
        time[1] = clock.now() - time[0];
    }

    @Override
    public String check() throws WrongResult {
        begin();
        step(STEPS);
        String told = told();
        if (Float.floatToRawIntBits(last) != (int) known[0] || pressure() != known[1]) {
            throw new WrongResult(told
                    + String.format(Locale.ROOT, "; known %.6e (bits %08x), %016x",
                            Float.intBitsToFloat((int) known[0]), known[0], known[1]));
        }
        return told;
    }

    @Override
    public String left() throws WrongResult {
        // The method must converge. The factor is four, since in single precision the first sums stop growing on large
        // grids.
        if (!(last >= 0 && last < 4 * Float.intBitsToFloat((int) known[0]))) {
            throw new WrongResult(told());
        }
        return told();
    }

    private long pressure() {
        long sum = Cpu.SUM_OF_NOTHING;
        for (float value : arrays[10]) {
            sum = Cpu.sum(sum, Float.floatToRawIntBits(value) & 0xffffffffL);
        }
        return sum;
    }

    private String told() {
        return String.format(Locale.ROOT, "gosa after %d steps %.6e (bits %08x), pressure %016x", steps, last,
                Float.floatToRawIntBits(last), pressure());
    }
}
