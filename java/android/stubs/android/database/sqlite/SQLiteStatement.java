package android.database.sqlite;

/** Compiled against only, never shipped: what of Android's class the workload uses, by Android's own signatures. */
public final class SQLiteStatement {
    private SQLiteStatement() {}

    public void bindLong(int index, long value) {}

    public void bindString(int index, String value) {}

    public int executeUpdateDelete() {
        throw new UnsupportedOperationException();
    }

    public void close() {}
}
