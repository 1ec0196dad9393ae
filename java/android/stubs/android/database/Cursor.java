package android.database;

/**
 * Only compiled against, never shipped: the part of Android's interface that the workload uses, with Android's own
 * signatures.
 */
public interface Cursor {
    boolean moveToNext();

    long getLong(int columnIndex);

    String getString(int columnIndex);

    void close();
}
