"""Executes statements by SQLite's C functions, and prints what SQLite itself counted for each: a JSON list of the executions in
their order, each its text and a list of counts.

argv: a new database. The counts are SQLITE_STMTSTATUS_FULLSCAN_STEP, _SORT, _AUTOINDEX, _VM_STEP, _REPREPARE, _RUN and
SQLITE_DBSTATUS_CACHE_HIT, _MISS, _WRITE, _SPILL: how far they grew between its first step and its reset.
"""
import ctypes, json, sys

lib = ctypes.CDLL("libsqlite3.so.0")
for name in ("sqlite3_prepare_v2", "sqlite3_step", "sqlite3_reset", "sqlite3_finalize", "sqlite3_stmt_status", "sqlite3_bind_int64"):
    getattr(lib, name).restype = ctypes.c_int
db = ctypes.c_void_p()
assert lib.sqlite3_open(sys.argv[1].encode(), ctypes.byref(db)) == 0
ROW, DONE = 100, 101
counted = []


def counts(stmt):
    now, most = ctypes.c_int(), ctypes.c_int()
    all = [lib.sqlite3_stmt_status(stmt, which, 0) & 0xFFFFFFFF for which in range(1, 7)]
    for which in (7, 8, 9, 12):
        assert lib.sqlite3_db_status(db, which, ctypes.byref(now), ctypes.byref(most), 0) == 0
        all.append(now.value)
    return all


def prepare(sql):
    stmt = ctypes.c_void_p()
    assert lib.sqlite3_prepare_v2(db, sql.encode(), -1, ctypes.byref(stmt), None) == 0, sql
    return stmt


def execute(stmt, sql, value=None, rows=None):
    """Executes it to its end, or resets it after some rows."""
    if value is not None:
        lib.sqlite3_bind_int64(stmt, 1, ctypes.c_int64(value))
    before, seen = counts(stmt), 0
    while True:
        result = lib.sqlite3_step(stmt)
        assert result in (ROW, DONE), (sql, result)
        seen += 1
        if result == DONE or seen == rows:
            break
    after = counts(stmt)
    lib.sqlite3_reset(stmt)
    counted.append([sql, [a - b for a, b in zip(after, before)]])


def once(sql, rows=None):
    stmt = prepare(sql)
    execute(stmt, sql, None, rows)
    lib.sqlite3_finalize(stmt)


def often(sql, values, rows=None):
    stmt = prepare(sql)
    for value in values:
        execute(stmt, sql, value, rows)
    lib.sqlite3_finalize(stmt)


once("CREATE TABLE t (id INTEGER PRIMARY KEY, k INTEGER, v TEXT)")
once("CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES t ON DELETE CASCADE)")
once("CREATE TABLE log (what TEXT)")
once("BEGIN")
often("INSERT INTO t VALUES (?, abs(random() % 100), hex(randomblob(100)))", range(3000))
often("INSERT INTO child (parent) VALUES (?)", [i // 3 for i in range(3000)])
once("COMMIT")
# A table without an index, with an index, sorted in memory.
often("SELECT id FROM t WHERE k = ?", range(20))
often("SELECT v FROM t WHERE id = ?", range(200))
often("SELECT v FROM t WHERE id > ? ORDER BY v", [2000, 0])
often("SELECT v FROM t WHERE id > ?", range(30), 5)
# Joined by a column without an index.
once("SELECT count(*) FROM t AS a CROSS JOIN t AS b ON a.k = b.k WHERE a.id < 50")
# Foreign keys and a trigger.
once("PRAGMA foreign_keys = 1")
often("DELETE FROM t WHERE id = ?", range(20))
once("CREATE TRIGGER a AFTER UPDATE ON t BEGIN INSERT INTO log VALUES (old.v); END")
once("UPDATE t SET k = k + 1 WHERE id < 100")
# The schema changes while a statement is kept.
kept = prepare("SELECT max(k) FROM t")
for nth in range(5):
    once("CREATE TABLE more%d (a)" % nth)
    execute(kept, "SELECT max(k) FROM t")
lib.sqlite3_finalize(kept)
# A cache that is too small.
once("PRAGMA cache_size = 10")
once("BEGIN")
once("UPDATE t SET v = v || 'x'")
once("COMMIT")
lib.sqlite3_close(db)
print(json.dumps(counted))
