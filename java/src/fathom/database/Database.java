package fathom.database;

/** A database behind its own API, as far as the workload uses it: Android's (java/android). */
public interface Database {
    void open(String path);

    void close();

    /** Executes a statement without rows. */
    void execute(String sql);

    /** Returns the first column of the first row. */
    String ask(String sql);

    /** Prepares a statement for repeated execution. */
    Prepared prepare(String sql);

    /**
     * Reads each row of a table of a number and a text. Returns the rows, the sum of the numbers, the characters of the
     * texts.
     */
    long[] scan(String sql);

    void begin();

    void commit();

    /** A prepared statement. */
    interface Prepared {
        void bind(int index, long value);

        void bind(int index, String value);

        /** Executes it; returns the number of rows that it changed. */
        long change();

        void close();
    }
}
