"""A program with known I/O: INSERTs and SELECTs in SQLite with settings given as JSON, as drawn by `truth`; or, with `writers`, that many
concurrent processes that each write a page `writes` times, bypassing the page cache.

argv: `setup` or `run`, and the settings. `setup` creates the database with its rows; only `run` is recorded. It reports how long it
and its statements took by its own clock, and how long it was runnable without a CPU meanwhile (`/proc/self/schedstat`).
"""

import json
import mmap
import os
import sqlite3
import sys
import time

action, settings = sys.argv[1], json.loads(sys.argv[2])


def setting(name, default):
    return settings.get(name, default)


def connect():
    # Without cached statements, Python prepares every statement again.
    cached = 100 if setting("keep_statements", True) else 0
    db = sqlite3.connect(settings["database"], isolation_level=None, cached_statements=cached, timeout=60)
    db.execute("PRAGMA page_size=%d" % setting("page_size", 4096))
    db.execute("PRAGMA journal_mode=%s" % setting("journal_mode", "delete"))
    db.execute("PRAGMA synchronous=%s" % setting("synchronous", "full"))
    db.execute("PRAGMA cache_size=%d" % setting("cache_size", 2000))
    db.execute("PRAGMA wal_autocheckpoint=%d" % setting("wal_autocheckpoint", 1000))
    return db


def file_of(writer):
    return "%s.%d" % (settings["database"], writer)


if setting("writers", 0) and action == "setup":
    for writer in range(settings["writers"]):
        # Written in full, so that only data is written later.
        with open(file_of(writer), "wb") as f:
            f.write(bytes(1 << 20))
    os.sync()
    sys.exit(0)
if setting("writers", 0):
    page = mmap.mmap(-1, 4096)
    since = time.monotonic_ns()
    for writer in range(settings["writers"]):
        if os.fork() == 0:
            f = os.open(file_of(writer), os.O_RDWR | os.O_DIRECT)
            for i in range(settings["writes"]):
                os.pwritev(f, [page], 4096 * (i % 256))
            os._exit(0)
    for writer in range(settings["writers"]):
        os.wait()
    with open(settings["report"], "w") as f:
        json.dump({"elapsed_ns": time.monotonic_ns() - since, "statements_ns": 0, "run_delay_ns": 0}, f)
    os._exit(0)

text = "x" * setting("bytes", 100)
if action == "setup":
    db = connect()
    db.execute("CREATE TABLE t (i INTEGER, s TEXT)")
    db.execute("BEGIN")
    for i in range(setting("table_rows", 0)):
        db.execute("INSERT INTO t VALUES (?, ?)", (i, text))
    db.execute("COMMIT")
    if setting("index", False):
        db.execute("CREATE INDEX by_i ON t (i)")
    db.close()
    if setting("wal_bytes", 0):
        # A WAL that already has its size is overwritten, so that no commit of the file system is needed. Zeros are no valid header:
        # SQLite starts a new WAL.
        with open(settings["database"] + "-wal", "wb") as wal:
            wal.write(bytes(setting("wal_bytes", 0)))
    os.sync()
    if setting("cold", False):
        file = os.open(settings["database"], os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    sys.exit(0)


def delayed():
    with open("/proc/self/schedstat") as f:
        return int(f.read().split()[1])


in_statements = 0


def run(sql, values=()):
    """Runs a statement, timed by the program's own clock: the program's time between statements does not count."""
    global in_statements
    since = time.monotonic_ns()
    db.execute(sql, values).fetchall()
    in_statements += time.monotonic_ns() - since


db = connect()
if "begun" in settings:
    # Processes that wait for this file start now.
    open(settings["begun"], "w").close()
    time.sleep(0.02)
since, delay = time.monotonic_ns(), delayed()
at_once = setting("per_transaction", 1)
for i in range(setting("rows", 0)):
    if at_once > 1 and i % at_once == 0:
        run("BEGIN")
    run("INSERT INTO t VALUES (?, ?)", (i, text))
    if at_once > 1 and i % at_once == at_once - 1:
        run("COMMIT")
if db.in_transaction:
    run("COMMIT")
for i in range(setting("selects", 0)):
    run("SELECT s FROM t WHERE i = ?", (i * setting("stride", 7) % max(1, setting("table_rows", 1)),))
for i in range(setting("lookups", 0)):
    run("SELECT s FROM t WHERE rowid = ?", (i * 7 % max(1, setting("table_rows", 1)) + 1,))
for i in range(setting("aggregates", 0)):
    run("SELECT count(*), max(i), sum(length(s)) FROM t")
for i in range(setting("sorts", 0)):
    run("SELECT i FROM t ORDER BY s, -i")
for i in range(setting("computations", 0)):
    run("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 50000) SELECT sum(x) FROM c")
if setting("updates", 0):
    run("BEGIN")
    for i in range(setting("updates", 0)):
        run("UPDATE t SET s = ? WHERE i = ?", (text[1:] + "y", i * 7 % max(1, setting("table_rows", 1))))
    run("COMMIT")
if "report" in settings:
    with open(settings["report"], "w") as f:
        elapsed = time.monotonic_ns() - since
        json.dump({"elapsed_ns": elapsed, "statements_ns": in_statements, "run_delay_ns": delayed() - delay}, f)
# Closing would checkpoint and delete a WAL, which is not part of the workload.
os._exit(0)
