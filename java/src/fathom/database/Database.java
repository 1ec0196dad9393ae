package fathom.database;

/** A database through an API of its own, as far as the workload uses it: Android's (java/android). */
public interface Database {
    void open(String path);

    void close();

    /** A statement without rows. */
    void execute(String sql);

    /** The first column of the first row. */
    String ask(String sql);

    /** A statement that is executed again and again. */
    Prepared prepare(String sql);

    /** Reads each row of a table of a number and a text: rows, the sum of the numbers, the characters of the texts. */
    long[] scan(String sql);

    void begin();

    void commit();

    /** A prepared statement. */
    interface Prepared {
        void bind(int index, long value);

        void bind(int index, String value);

        /** Executes it; how many rows it changed. */
        long change();

        void close();
    }
}
