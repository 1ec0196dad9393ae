package io.fathom;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Counts what a piece of a test asks of files: syncs, calls, bytes. Needs the program {@code fathom} in PATH (or
 * FATHOM), Linux 5.3, and no root; but where only ancestors may attach to a process (Yama, kernel.yama.ptrace_scope=1),
 * Java cannot permit it: start the tests as root there.
 *
 * <p>Counts are of the whole process: of other threads and children, too.
 */
public final class Fathom {
    /** Something that may fail. */
    @FunctionalInterface
    public interface Work {
        /** Does it. */
        void run() throws Exception;
    }

    /** Calls cannot be counted here; the message says why. */
    public static final class NotCounted extends RuntimeException {
        private static final long serialVersionUID = 1L;

        NotCounted(String why, Throwable cause) {
            super("fathom cannot count here: " + why, cause);
        }
    }

    private static final Pattern PAIR = Pattern.compile("\"([^\"]+)\":(\\d+)");
    private static Fathom running;

    private final Writer input;
    private final BufferedReader output;

    private Fathom() throws IOException {
        String program = System.getenv().getOrDefault("FATHOM", "fathom");
        String pid = Long.toString(ProcessHandle.current().pid());
        ProcessBuilder builder = new ProcessBuilder(program, "check", "attach", pid);
        Process process = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
        input = new OutputStreamWriter(process.getOutputStream(), StandardCharsets.UTF_8);
        output = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        ask("attach");
    }

    /** Counts what the process asks of files while {@code work} runs. */
    public static synchronized Counts counting(Work work) throws Exception {
        Counts before = read();
        work.run();
        return read().less(before);
    }

    /** The counts since the first question. */
    static synchronized Counts read() {
        try {
            if (running == null) {
                running = new Fathom();
            }
            String line = running.ask("count");
            Map<String, Long> byKind = new TreeMap<>();
            Matcher pairs = PAIR.matcher(line.substring(line.indexOf("\"counts\":{") + 1));
            while (pairs.find()) {
                byKind.put(pairs.group(1), Long.parseLong(pairs.group(2)));
            }
            byKind.remove("version");
            return new Counts(byKind);
        } catch (IOException error) {
            throw new NotCounted(error.getMessage(), error);
        }
    }

    private String ask(String question) throws IOException {
        input.write(question + "\n");
        input.flush();
        String line = output.readLine();
        if (line == null) {
            throw new IOException("the program has ended; it says why on stderr");
        }
        return line;
    }
}
