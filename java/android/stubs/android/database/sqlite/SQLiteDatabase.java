package android.database.sqlite;

import android.database.Cursor;

/**
 * Only compiled against, never shipped: the part of Android's class that the workload uses, with Android's own
 * signatures.
 */
public final class SQLiteDatabase {
    public static final int OPEN_READWRITE = 0x00000000;
    public static final int NO_LOCALIZED_COLLATORS = 0x00000010;

    private SQLiteDatabase() {}

    /** Creates cursors. */
    public interface CursorFactory {}

    public static SQLiteDatabase openDatabase(String path, CursorFactory factory, int flags) {
        throw new UnsupportedOperationException();
    }

    public void close() {}

    public void execSQL(String sql) {}

    public Cursor rawQuery(String sql, String[] selectionArgs) {
        throw new UnsupportedOperationException();
    }

    public SQLiteStatement compileStatement(String sql) {
        throw new UnsupportedOperationException();
    }

    public void beginTransactionNonExclusive() {}

    public void setTransactionSuccessful() {}

    public void endTransaction() {}
}
