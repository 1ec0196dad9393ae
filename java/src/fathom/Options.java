package fathom;

import java.util.HashMap;
import java.util.Map;

/** The name of a workload, and options `--name value`. */
public final class Options {
    private final String workload;
    private final Map<String, String> values = new HashMap<>();

    public Options(String[] words) {
        if (words.length % 2 == 0) {
            throw new IllegalArgumentException("give WORKLOAD --NAME VALUE ...; fathom workload does");
        }
        workload = words[0];
        for (int i = 1; i < words.length; i += 2) {
            if (!words[i].startsWith("--")) {
                throw new IllegalArgumentException("not an option: " + words[i]);
            }
            values.put(words[i].substring(2), words[i + 1]);
        }
    }

    public String workload() {
        return workload;
    }

    public String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    public String text(String name, String otherwise) {
        return values.containsKey(name) ? values.get(name) : otherwise;
    }

    public long number(String name, long otherwise) {
        return values.containsKey(name) ? numbers(name)[0] : otherwise;
    }

    /** Integers separated by commas. */
    public long[] numbers(String name) {
        String[] parts = text(name).split(",");
        long[] numbers = new long[parts.length];
        for (int i = 0; i < parts.length; i++) {
            try {
                numbers[i] = Long.parseLong(parts[i]);
            } catch (NumberFormatException e) {
                throw new IllegalArgumentException("--" + name + " cannot be " + text(name), e);
            }
        }
        return numbers;
    }

    /** Hexadecimal numbers separated by commas, or null if the option is absent. */
    public long[] bits(String name) {
        if (!values.containsKey(name)) {
            return null;
        }
        String[] parts = text(name).split(",");
        long[] numbers = new long[parts.length];
        for (int i = 0; i < parts.length; i++) {
            numbers[i] = Long.parseUnsignedLong(parts[i], 16);
        }
        return numbers;
    }
}
