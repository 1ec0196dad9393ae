package fathom.storage;

import fathom.Clock;
import fathom.Options;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;

/**
 * Writes and reads whole files, as the papers' program did (000, section 4.5.2): streams and an array, nothing newer.
 *
 * <p>`fathom workload file` creates the directories, sets the state of the cache and counts the disk's I/O; this
 * process receives `write DIRECTORY` or `read DIRECTORY`, does that, and responds with start and duration in ns. See
 * crates/workload/src/storage/machine.rs.
 */
public final class Files {
    private final int files;
    private final long blocks;
    private final boolean sync;
    private final Pattern pattern;
    private final byte[] block;

    private Files(Options options) {
        files = (int) options.number("files", 0);
        blocks = options.number("blocks", 0);
        sync = options.number("sync", 0) != 0;
        int length = (int) options.number("block", 0);
        pattern = new Pattern(options.number("seed", 0), length);
        block = new byte[length];
    }

    /** Executes commands until there are no more. Returns the method that takes the time outside the kernel. */
    public static String[] serve(Options options, Clock clock, PrintStream out) throws IOException {
        Files all = new Files(options);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            int space = order.indexOf(' ');
            String directory = order.substring(space + 1);
            try {
                long begin = clock.now();
                if (order.startsWith("write ")) {
                    all.write(directory);
                } else {
                    all.read(directory);
                }
                out.print("done " + begin + " " + (clock.now() - begin) + "\n");
            } catch (Wrong wrong) {
                out.print("wrong " + wrong.getMessage() + "\n");
            } catch (IOException failed) {
                out.print("failed " + failed.getMessage() + "\n");
            }
            out.flush();
        }
        return new String[] {"fathom.storage.Pattern.word"};
    }

    private static File file(String directory, int nth) {
        String digits = Integer.toString(nth);
        return new File(directory, "000000".substring(digits.length()) + digits);
    }

    private void write(String directory) throws IOException {
        for (int nth = 0; nth < files; nth++) {
            FileOutputStream stream = new FileOutputStream(file(directory, nth));
            try {
                for (long at = 0; at < blocks; at++) {
                    int from = pattern.at((nth * blocks + at) * block.length);
                    stream.write(pattern.bytes(), from, block.length);
                }
                if (sync) {
                    // fdatasync, as the native program does.
                    stream.getChannel().force(false);
                }
            } finally {
                stream.close();
            }
        }
    }

    private void read(String directory) throws IOException, Wrong {
        for (int nth = 0; nth < files; nth++) {
            File file = file(directory, nth);
            FileInputStream stream = new FileInputStream(file);
            try {
                for (long at = 0; at < blocks; at++) {
                    for (int got = 0; got < block.length;) {
                        int n = stream.read(block, got, block.length - got);
                        if (n < 0) {
                            throw new IOException(file + " (it ends after " + (at * block.length + got) + " bytes)");
                        }
                        got += n;
                    }
                    long offset = (nth * blocks + at) * block.length;
                    long wrong = pattern.wrongStamp(offset, block);
                    if (wrong >= 0) {
                        throw new Wrong((wrong - nth * blocks * block.length) + " " + file);
                    }
                }
            } finally {
                stream.close();
            }
        }
    }

    private static final class Wrong extends Exception {
        private static final long serialVersionUID = 1;

        Wrong(String message) {
            super(message);
        }
    }
}
