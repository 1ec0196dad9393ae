package android.database.sqlite;

/**
 * Only compiled against, never shipped: the part of Android's class that the workload uses, with Android's own
 * signatures.
 */
public final class SQLiteStatement {
    private SQLiteStatement() {}

    public void bindLong(int index, long value) {}

    public void bindString(int index, String value) {}

    public int executeUpdateDelete() {
        throw new UnsupportedOperationException();
    }

    public void close() {}
}
