"""INSERTs by a program that loads SQLite as a library, which can be probed inside: DIRECTORY JOURNAL ROWS ROUNDS.

As `fathom workload sqlite`: autocommit, synchronous=full; the first rounds warm the machine up, the last is timed. Besides its rate,
it prints the lower quartile of the times of single INSERTs, as a rate: other load on the machine disturbs it less.
"""
import json
import os
import sqlite3
import sys
import time

directory, journal, rows, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
db = sqlite3.connect(os.path.join(directory, "insert.db"), isolation_level=None)
db.execute(f"PRAGMA journal_mode={journal}").fetchall()
db.execute("PRAGMA synchronous=full")
db.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
row = ("x" * 100,)
for _ in range(rounds):
    took = []
    begin = time.perf_counter_ns()
    for _ in range(rows):
        before = time.perf_counter_ns()
        db.execute("INSERT INTO t (b) VALUES (?)", row)
        took.append(time.perf_counter_ns() - before)
    all_ns = time.perf_counter_ns() - begin
took.sort()
print(json.dumps({"metric": "insert.rate", "unit": "1/s", "v": rows / all_ns * 1e9}))
print(json.dumps({"metric": "insert.quick", "unit": "1/s", "v": 1e9 / took[rows // 4]}))
