package android.database;

/** Compiled against only, never shipped: what of Android's interface the workload uses, by Android's own signatures. */
public interface Cursor {
    boolean moveToNext();

    long getLong(int columnIndex);

    String getString(int columnIndex);

    void close();
}
