# A program drawn from a grammar, with or without one perturbation. argv: directory, seed, perturbation or "none"; prints the seconds of
# the drawn part, how many of them its thread waited for a processor, by the kernel's count, and how many of the rest the perturbation took
# by the program's own clock. The same seed draws the same program whatever perturbs it.
import os, random, sqlite3, subprocess, sys, threading, time

directory, seed, cause = sys.argv[1], int(sys.argv[2]), sys.argv[3]
draw = random.Random(seed)
path = os.path.join(directory, "drawn.db")
for name in os.listdir(directory):
    if name.startswith("drawn"):
        os.unlink(os.path.join(directory, name))
db = sqlite3.connect(path, isolation_level=None, timeout=30, check_same_thread=False)
db.execute("PRAGMA journal_mode=" + draw.choice(["wal", "delete", "truncate", "persist"]))
# Without syncs of its own, so that an added one is not hidden by those that are there anyway.
db.execute("PRAGMA synchronous=" + ("full" if cause == "pragma" else "off"))
db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, k INTEGER, v TEXT)")
db.execute("BEGIN")
for i in range(2000):
    db.execute("INSERT INTO t (k, v) VALUES (?, ?)", (draw.randrange(2000), "x" * 200))
db.execute("COMMIT")
pieces = draw.choice([20, 40, 80])
milliseconds = 400 // pieces
side = os.open(os.path.join(directory, "drawn.side"), os.O_CREAT | os.O_RDWR)
gate = threading.Lock()
if cause == "cold":
    cold = os.open(os.path.join(directory, "drawn.cold"), os.O_CREAT | os.O_RDWR)
    os.pwrite(cold, b"c" * (milliseconds << 19), 0)
    os.fsync(cold)
# Who makes the drawn part wait is there before it begins: starting a thread would take time of its own.
if cause == "pipe":
    (asked, ask), (late, wake) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(ask)
        while os.read(asked, 1):
            time.sleep(milliseconds / 1000)
            os.write(wake, b"x")
        os._exit(0)
elif cause == "thread_lock":
    requests = threading.Semaphore(0)

    def hold():
        while True:
            requests.acquire()
            time.sleep(milliseconds / 1000)
            gate.release()

    threading.Thread(target=hold, daemon=True).start()


schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)


def waited():
    return int(os.pread(schedstat, 64, 0).split()[1]) / 1e9


def now():
    return time.perf_counter() - waited()


taken = 0


def perturb():
    global taken
    start = now()
    disturb()
    if cause != "pragma":
        taken += now() - start
    return 1


def disturb():
    if cause == "sleep":
        time.sleep(milliseconds / 1000)
    elif cause == "compute":
        until = time.thread_time() + milliseconds / 1000
        while time.thread_time() < until:
            sum(range(200))
    elif cause == "fsync":
        for _ in range(40):
            os.pwrite(side, b"s" * 4096, 0)
            os.fsync(side)
    elif cause == "cold":
        os.posix_fadvise(cold, 0, 0, os.POSIX_FADV_DONTNEED)
        for at in range(0, milliseconds << 19, 1 << 17):
            os.pread(cold, 1 << 17, at)
    elif cause == "pipe":
        os.write(ask, b"x")
        os.read(late, 1)
    elif cause == "thread_lock":
        gate.acquire()
        requests.release()
        gate.acquire()
        gate.release()


db.create_function("perturb", 0, perturb)
other = None
if cause == "lock":
    code = "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN EXCLUSIVE'); " \
        "c.execute('INSERT INTO t (k) VALUES (1)'); print(flush=True); time.sleep(0.5); c.execute('COMMIT')"
    other = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE)
    other.stdout.readline()
start, start_waited = time.perf_counter(), waited()
for i in range(pieces):
    step = draw.choice(["insert", "search", "scan", "update", "write", "compute"])
    begin = now()
    if step == "insert":
        db.execute("INSERT INTO t (k, v) VALUES (?, ?)", (i, "y" * draw.randrange(300)))
    elif step == "search":
        db.execute("SELECT v FROM t WHERE id = ?", (draw.randrange(2000),)).fetchall()
    elif step == "scan":
        db.execute("SELECT count(*) FROM t WHERE v LIKE ?", ("%z%",)).fetchall()
    elif step == "update":
        db.execute("UPDATE t SET v = ? WHERE id = ?", ("z" * 100, draw.randrange(2000)))
    elif step == "write":
        os.pwrite(side, b"w" * 4096, 4096 * draw.randrange(64))
    else:
        sum(range(draw.randrange(20000)))
    if cause == "pragma" and step in ("insert", "update"):
        taken += now() - begin
    db.execute("SELECT perturb()").fetchall()
    if cause == "outside":
        begin = now()
        time.sleep(milliseconds / 1000)
        taken += now() - begin
print("%.6f %.6f %.6f" % (time.perf_counter() - start, waited() - start_waited, taken), flush=True)
if other:
    other.wait()
os._exit(0)
