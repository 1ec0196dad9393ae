package fathom;

import fathom.cpu.Cpu;
import fathom.database.Statements;
import fathom.draw.Draw;
import fathom.proof.Mode;
import fathom.storage.Files;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;

/**
 * A replicate in Java: options in, lines of JSON out, exit 0, 1 or 2, as every workload does. `fathom workload` starts
 * it, after checking the options; on a device, dalvikvm or app_process starts the same classes, dexed.
 */
public final class Main {
    /**
     * The arguments, separated by spaces, where the command line must be short (crates/workload/src/art.rs explains
     * why).
     */
    private static final String WORDS = "FATHOM_WORDS";

    private Main() {}

    public static void main(String[] given) {
        String words = given.length == 0 ? System.getenv(WORDS) : null;
        run(words == null ? given : words.split(" "));
    }

    private static void run(String[] words) {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false);
        int status;
        try {
            Options options = new Options(words);
            Clock clock = new Clock(options.number("boottime-offset-ns", 0));
            if (options.workload().equals("file")) {
                String[] hot = Files.serve(options, clock, out);
                out.print("mode " + Mode.prove(options.text("mode"), hot) + "\n");
                out.flush();
                System.exit(0);
            }
            if (options.workload().equals("sqlite")) {
                Statements.serve(options, clock, out);
                out.print(Json.mark("art.maps", Mode.maps()));
                out.print(Json.mark("art", Mode.runtime()));
                out.flush();
                System.exit(0);
            }
            Measured measured =
                    options.workload().equals("draw") ? Draw.measure(options, clock) : Cpu.measure(options, clock);
            // After the work, so that the proof includes what was compiled in the meantime.
            if (Mode.isAndroid()) {
                out.print(Json.mark("art.maps", Mode.maps()));
                out.print(Json.mark("art", Mode.runtime()));
            } else {
                out.print(Json.mark("mode", Mode.prove(options.text("mode"), measured.hotMethod())));
            }
            measured.print(out);
            status = 0;
        } catch (WrongResult wrong) {
            out.print("{\"verified\":false,\"by\":" + Json.text(wrong.getMessage()) + "}\n");
            System.err.println("fathom: wrong result: " + wrong.getMessage());
            status = 1;
        } catch (IllegalArgumentException usage) {
            System.err.println("fathom: " + usage.getMessage());
            status = 2;
        } catch (IOException | Mode.Contradiction | IllegalStateException broken) {
            System.err.println("fathom: " + broken.getMessage());
            status = 1;
        } catch (OutOfMemoryError full) {
            System.err.println("fathom: the heap is too small for this size: " + full.getMessage());
            status = 1;
        } catch (RuntimeException | LinkageError unexpected) {
            // Printed here, since app_process would print it only to the device's log.
            unexpected.printStackTrace();
            status = 1;
        }
        out.flush();
        if (out.checkError() && status == 0 && !readerHasGone()) {
            System.err.println("fathom: cannot write the result");
            status = 1;
        }
        System.exit(status);
    }

    /** A PrintStream does not report why it failed; another write does. A reader that stops early is not a failure. */
    private static boolean readerHasGone() {
        try {
            new FileOutputStream(FileDescriptor.out).write('\n');
            return false;
        } catch (IOException e) {
            return String.valueOf(e.getMessage()).contains("Broken pipe");
        }
    }
}
