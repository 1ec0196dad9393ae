"""Does what its standard input says, one line each, and reports when each operation began and ended (CLOCK_BOOTTIME, ns) as JSON.

argv: a directory, and `fsync` or `insert`. `do N`: N operations. `flood BYTES`: writes so much to another file, and syncs it.
"""

import json
import os
import sqlite3
import sys
import time

directory, kind = sys.argv[1], sys.argv[2]


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


if kind == "insert":
    connection = sqlite3.connect(os.path.join(directory, "t.db"), isolation_level=None)
    connection.execute("CREATE TABLE t (x)")

    def operate():
        begin = now()
        connection.execute("INSERT INTO t VALUES (?)", ("x" * 100,))
        return begin, now()
else:
    file = os.open(os.path.join(directory, "t.log"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def operate():
        os.write(file, b"x" * 100)
        begin = now()
        os.fsync(file)
        return begin, now()


print("ready", flush=True)
for line in sys.stdin:
    verb, count = line.split()
    if verb == "do":
        print(json.dumps([operate() for _ in range(int(count))]), flush=True)
    else:
        begin = now()
        flooded = os.open(os.path.join(directory, "flood"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.write(flooded, b"y" * int(count))
        os.fsync(flooded)
        os.close(flooded)
        print(json.dumps([(begin, now())]), flush=True)
