package fathom.storage;

/**
 * The content of a file: the stamped pattern of crates/workload/src/storage/pattern.rs, word for word. Blocks are
 * multiples of 8 bytes here.
 */
final class Pattern {
    private static final int WORD = 8;
    private static final int PAGE = 4096;
    private static final int LONGEST = 1 << 20;

    private final long seed;
    /** Distance in words from stamp to stamp, and the filler's period. */
    private final long granule;

    private final long period;
    private final int length;
    /** One period and one block. */
    private final byte[] memory;

    Pattern(long seed, int length) {
        if (length < WORD || length % WORD != 0) {
            throw new IllegalArgumentException("blocks of " + length + " bytes; they are multiples of 8 in Java");
        }
        this.seed = seed;
        this.length = length;
        granule = Integer.highestOneBit(Math.min(length, PAGE)) / WORD;
        int repeats = Math.max(Math.min(length, LONGEST), PAGE);
        int rounded = Integer.highestOneBit(repeats);
        period = (rounded == repeats ? rounded : rounded << 1) / WORD;
        memory = new byte[(int) period * WORD + length];
        for (int at = 0; at < memory.length; at += WORD) {
            put(at, word(at / WORD));
        }
    }

    byte[] bytes() {
        return memory;
    }

    /** Prepares the block at an offset, and returns where in the bytes it begins. */
    int at(long offset) {
        int skip = (int) (offset % (period * WORD));
        for (int at = first(offset); at < length; at += granule * WORD) {
            put(skip + at, word((offset + at) / WORD));
        }
        return skip;
    }

    /** Returns the offset of the first wrong stamp, or -1. */
    long wrongStamp(long offset, byte[] block) {
        for (int at = first(offset); at < length; at += granule * WORD) {
            if (get(block, at) != word((offset + at) / WORD)) {
                return offset + at;
            }
        }
        return -1;
    }

    private int first(long offset) {
        long step = granule * WORD;
        return (int) ((step - offset % step) % step);
    }

    private long word(long index) {
        boolean stamp = (index & (granule - 1)) == 0;
        long at = stamp ? index | 1L << 61 : index & (period - 1);
        long z = (seed ^ Long.rotateLeft(at, 32)) + at * 0x9e3779b97f4a7c15L;
        z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
        z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
        return z ^ (z >>> 31);
    }

    private void put(int at, long word) {
        for (int i = 0; i < WORD; i++) {
            memory[at + i] = (byte) (word >>> (8 * i));
        }
    }

    private static long get(byte[] from, int at) {
        long word = 0;
        for (int i = WORD - 1; i >= 0; i--) {
            word = word << 8 | from[at + i] & 0xff;
        }
        return word;
    }
}
