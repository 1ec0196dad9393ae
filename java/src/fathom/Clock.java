package fathom;

/** CLOCK_BOOTTIME, the clock of every trace: nanoTime is CLOCK_MONOTONIC, which lags by the time spent suspended. */
public final class Clock {
    private final long offsetNs;

    public Clock(long offsetNs) {
        this.offsetNs = offsetNs;
    }

    public long now() {
        return System.nanoTime() + offsetNs;
    }
}
