package fathom.proof;

import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.Charset;

/**
 * What Android's runtime reveals about itself: the lines of its memory map that name the runtime, the JIT's code cache
 * and compiled code. They are copied unchanged; the parent process evaluates them (crates/workload/src/art.rs).
 *
 * <p>Only features that every Android from 5 on has are used here.
 */
final class Art {
    private Art() {}

    static String maps() throws Mode.Contradiction {
        StringBuilder lines = new StringBuilder();
        try {
            FileInputStream file = new FileInputStream("/proc/self/maps");
            BufferedReader reader = new BufferedReader(new InputStreamReader(file, Charset.forName("UTF-8")));
            try {
                for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                    if (tells(line)) {
                        lines.append(line).append('\n');
                    }
                }
            } finally {
                reader.close();
            }
        } catch (IOException e) {
            throw new Mode.Contradiction("this runtime's memory map cannot be read: " + e.getMessage());
        }
        return lines.toString();
    }

    private static boolean tells(String line) {
        return line.contains("libart.so") || line.contains("jit-cache") || line.contains("jit-code-cache")
                || line.contains("libjvm.so") || (line.contains("robolectric") && line.contains(" r-x"))
                || line.contains("fathom") || line.endsWith(".odex") || line.endsWith(".oat")
                || line.endsWith("classes.dex");
    }
}
