"""INSERTs by this machine's SQLite: database, journal mode, page size, INSERTs, then the statements that create the tables."""
import sqlite3
import sys

database, mode, page, count, *tables = sys.argv[1:]
connection = sqlite3.connect(database, isolation_level=None)
connection.execute(f"PRAGMA page_size={page}")
(taken,) = connection.execute(f"PRAGMA journal_mode={mode}").fetchone()
for table in tables:
    connection.execute(table)
print(sqlite3.sqlite_version, taken)
for i in range(int(count)):
    connection.execute("INSERT INTO t (i, s) VALUES (?, ?)", (i, "x" * 20))
