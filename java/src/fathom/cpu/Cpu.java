package fathom.cpu;

import fathom.Clock;
import fathom.Load;
import fathom.Measured;
import fathom.Options;
import fathom.Series;
import fathom.WrongResult;

/** The CPU benchmarks: the same definitions, inputs and order of operations as in C and Rust. */
public final class Cpu {
    private Cpu() {}

    public static Measured measure(Options options, Clock clock) throws WrongResult {
        return Series.run(loads(options), "flop", options, clock);
    }

    private static Load[] loads(Options options) {
        long[] size = options.numbers("size");
        long[] known = options.bits("expect");
        switch (options.workload()) {
            case "himeno":
                return new Load[] {new Himeno(size, known)};
            case "linpack":
                return new Load[] {new Linpack((int) size[0], known)};
            case "scimark":
                String[] kernels = options.text("kernel").split(",");
                Load[] loads = new Load[kernels.length];
                for (int i = 0; i < kernels.length; i++) {
                    loads[i] = SciMark.load(kernels[i], size, known);
                }
                return loads;
            default:
                throw new IllegalArgumentException("no such workload: " + options.workload());
        }
    }

    /** The initial value of a checksum. */
    static final long SUM_OF_NOTHING = 0xcbf29ce484222325L;

    /** Adds a word to a checksum, the same in every language; see crates/workload/src/cpu/checksum.rs. */
    static long sum(long before, long word) {
        return (before ^ word) * 0x00000100000001b3L;
    }

    /** Returns the checksum of the bits of the values. */
    static long checksum(double[] values) {
        long sum = SUM_OF_NOTHING;
        for (double value : values) {
            sum = sum(sum, Double.doubleToRawLongBits(value));
        }
        return sum;
    }
}
