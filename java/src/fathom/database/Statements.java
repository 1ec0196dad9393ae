package fathom.database;

import fathom.Clock;
import fathom.Options;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.Charset;
import java.util.Arrays;

/**
 * The statements of `fathom workload sqlite` through a Java database API.
 *
 * <p>The parent process creates the file, checks its content with its own engine and removes it; this process receives
 * `open PATH`, `create`, `fill`, `run` and `close`, one per line, and responds with `fathom: done BEGIN NS COUNT`,
 * `fathom: text …` or `fathom: failed …`. Other output lines are not part of the protocol. See
 * crates/workload/src/sqlite/android.rs.
 */
public final class Statements {
    private static final String INSERT = "INSERT INTO t VALUES (?, ?)";

    private final Database database;
    private final Clock clock;
    private final String op;
    private final long rows;
    private final long scans;
    private final long perTransaction;
    private final String pageSize;
    private final String synchronous;
    private final String journalMode;
    /** The text of a row: ten digits, then a part that is the same in all rows. */
    private final char[] text = new char[100];

    private Statements(Options options, Clock clock) {
        this.database = database();
        this.clock = clock;
        op = options.text("op");
        rows = options.number("rows", 0);
        scans = options.number("scans", 0);
        perTransaction = options.number("per-transaction", 1);
        pageSize = options.text("page-size");
        synchronous = options.text("synchronous");
        journalMode = options.text("journal-mode");
        Arrays.fill(text, 'x');
        "abcdefghijklmnopqrstuvwxyz ".getChars(0, 27, text, 10);
    }

    private static Database database() {
        // Only compiled for a device; see java/android.
        try {
            return (Database) Class.forName("fathom.database.AndroidDatabase").getConstructor().newInstance();
        } catch (ReflectiveOperationException | LinkageError e) {
            throw new IllegalStateException("Android's database classes are not here: " + e, e);
        }
    }

    /** Executes commands until there are no more. */
    public static void serve(Options options, Clock clock, PrintStream out) throws IOException {
        Statements statements = new Statements(options, clock);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, Charset.forName("UTF-8")));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String answer;
            try {
                answer = statements.obey(line);
            } catch (RuntimeException e) {
                answer = "failed " + String.valueOf(e.getMessage()).replace('\n', ' ');
            }
            out.print("fathom: " + answer + "\n");
            out.flush();
        }
    }

    private String obey(String line) {
        if (line.startsWith("open ")) {
            database.open(line.substring(5));
            database.execute("PRAGMA page_size = " + pageSize);
            database.execute("PRAGMA synchronous = " + synchronous);
            String mode = database.ask("PRAGMA journal_mode = " + journalMode);
            // The settings in force, whatever the framework made of the request.
            return "text " + mode + " " + database.ask("PRAGMA synchronous") + " " + database.ask("PRAGMA page_size");
        }
        switch (line) {
            case "version":
                return "text " + database.ask("SELECT sqlite_version() || ' (' || sqlite_source_id() || ')'");
            case "create":
                database.execute("CREATE TABLE t (n INTEGER, s TEXT)");
                return "text done";
            case "fill":
                fill();
                return "text done";
            case "run":
                return run();
            case "close":
                database.close();
                return "text done";
            default:
                throw new IllegalArgumentException("no such order: " + line);
        }
    }

    private void fill() {
        Database.Prepared insert = database.prepare(INSERT);
        database.begin();
        for (long n = 1; n <= rows; n++) {
            insert.bind(1, n);
            insert.bind(2, textOf(n));
            insert.change();
        }
        database.commit();
        insert.close();
    }

    private String textOf(long n) {
        long rest = n;
        for (int i = 9; i >= 0; i--) {
            text[i] = (char) ('0' + rest % 10);
            rest /= 10;
        }
        return new String(text);
    }

    private String run() {
        return op.equals("select") ? select() : change();
    }

    private String select() {
        long[] expected = {rows, rows % 2 == 0 ? rows / 2 * (rows + 1) : (rows + 1) / 2 * rows, rows * text.length};
        long begin = clock.now();
        for (long n = 1; n <= scans; n++) {
            long[] found = database.scan("SELECT * FROM t");
            if (!Arrays.equals(found, expected)) {
                return "wrong scan " + n + " found " + Arrays.toString(found) + " instead of "
                        + Arrays.toString(expected);
            }
        }
        return "done " + begin + " " + (clock.now() - begin) + " " + scans;
    }

    private String change() {
        boolean insert = op.equals("insert");
        String sql = insert           ? INSERT
                : op.equals("update") ? "UPDATE t SET n = n + 1 WHERE rowid = ?"
                                      : "DELETE FROM t WHERE rowid = ?";
        boolean grouped = perTransaction > 1;
        Database.Prepared statement = database.prepare(sql);
        long begin = clock.now();
        for (long n = 1; n <= rows; n++) {
            if (grouped && (n - 1) % perTransaction == 0) {
                database.begin();
            }
            statement.bind(1, n);
            if (insert) {
                statement.bind(2, textOf(n));
            }
            long changed = statement.change();
            if (changed != 1) {
                return "wrong " + op + " " + n + " changed " + changed + " rows instead of one";
            }
            if (grouped && (n % perTransaction == 0 || n == rows)) {
                database.commit();
            }
        }
        long ns = clock.now() - begin;
        statement.close();
        return "done " + begin + " " + ns + " " + rows;
    }
}
