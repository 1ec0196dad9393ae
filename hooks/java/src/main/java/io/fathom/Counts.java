package io.fathom;

import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;

/** Counts by kind of file, by the names of {@code fathom check}: {@code fdatasync WAL}, {@code bytes written file}. */
public final class Counts {
    private final Map<String, Long> byKind;

    Counts(Map<String, Long> byKind) {
        this.byKind = byKind;
    }

    /** All counts. */
    public Map<String, Long> byKind() {
        return new TreeMap<>(byKind);
    }

    /** The number of calls of these names, on any kind of file. */
    public long calls(String... names) {
        return byKind.entrySet()
                .stream()
                .filter(one -> Arrays.asList(names).contains(one.getKey().split(" ")[0]))
                .mapToLong(Map.Entry::getValue)
                .sum();
    }

    /** Calls that wait for the medium. */
    public long fsyncs() {
        return calls("fsync", "fdatasync", "sync_file_range", "sync", "msync");
    }

    /** Bytes that calls wrote to files. */
    public long bytesWritten() {
        return byKind.entrySet()
                .stream()
                .filter(one -> one.getKey().startsWith("bytes written"))
                .mapToLong(Map.Entry::getValue)
                .sum();
    }

    Counts less(Counts before) {
        Map<String, Long> changed = new TreeMap<>();
        byKind.forEach((kind, n) -> {
            long more = n - before.byKind.getOrDefault(kind, 0L);
            if (more > 0) {
                changed.put(kind, more);
            }
        });
        return new Counts(changed);
    }

    @Override
    public String toString() {
        return byKind.toString();
    }
}
