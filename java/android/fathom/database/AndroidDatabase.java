package fathom.database;

import android.database.Cursor;
import android.database.sqlite.SQLiteDatabase;
import android.database.sqlite.SQLiteStatement;

/**
 * SQLite through Android's framework (android.database), as an app uses it: compiled statements, and cursors whose rows
 * pass through a window of shared memory.
 *
 * <p>Without localized collators, so that the framework adds no table of its own (android_metadata) to the file.
 */
public final class AndroidDatabase implements Database {
    private SQLiteDatabase database;

    @Override
    public void open(String path) {
        int flags = SQLiteDatabase.OPEN_READWRITE | SQLiteDatabase.NO_LOCALIZED_COLLATORS;
        database = SQLiteDatabase.openDatabase(path, null, flags);
    }

    @Override
    public void close() {
        if (database != null) {
            database.close();
            database = null;
        }
    }

    @Override
    public void execute(String sql) {
        database.execSQL(sql);
    }

    @Override
    public String ask(String sql) {
        Cursor rows = database.rawQuery(sql, null);
        try {
            return rows.moveToNext() ? rows.getString(0) : "";
        } finally {
            rows.close();
        }
    }

    @Override
    public Prepared prepare(String sql) {
        return new Compiled(database.compileStatement(sql));
    }

    @Override
    public long[] scan(String sql) {
        long[] found = new long[3];
        Cursor rows = database.rawQuery(sql, null);
        try {
            while (rows.moveToNext()) {
                found[0]++;
                found[1] += rows.getLong(0);
                found[2] += rows.getString(1).length();
            }
        } finally {
            rows.close();
        }
        return found;
    }

    @Override
    public void begin() {
        database.beginTransactionNonExclusive();
    }

    @Override
    public void commit() {
        database.setTransactionSuccessful();
        database.endTransaction();
    }

    private static final class Compiled implements Prepared {
        private final SQLiteStatement statement;

        Compiled(SQLiteStatement statement) {
            this.statement = statement;
        }

        @Override
        public void bind(int index, long value) {
            statement.bindLong(index, value);
        }

        @Override
        public void bind(int index, String value) {
            statement.bindString(index, value);
        }

        @Override
        public long change() {
            return statement.executeUpdateDelete();
        }

        @Override
        public void close() {
            statement.close();
        }
    }
}
