# Every kind of operation with every kind of wait at its begin, in the middle and at its end; prints for each what the program itself
# knows of it: process, kind, wait, place, begin and end (CLOCK_BOOTTIME, ns), its thread's CPU time, and its time in the run queue
# and how much of that may be before begin or after end (ns).
# argv: a directory on a disk; the kinds of operation.
import ctypes, fcntl, mmap, os, select, socket, sqlite3, struct, sys, threading, time

directory, kinds = sys.argv[1], sys.argv[2:]
ASLEEP_S, BUSY_NS = 0.03, 3_000_000

def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

def cpu():
    return time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID)

def queued():
    # Field 2 of schedstat is run_delay, which the kernel counts apart from any tracer (proc_pid_schedstat).
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1])

def busy():
    until = cpu() + BUSY_NS
    while cpu() < until:
        pass

def later(what):
    # By another thread: what ends the wait.
    def run():
        time.sleep(ASLEEP_S)
        what()
    thread = threading.Thread(target=run)
    thread.start()
    return thread

def timer():
    time.sleep(ASLEEP_S)

def futex():
    lock = threading.Lock()
    lock.acquire()
    thread = later(lock.release)
    lock.acquire()
    thread.join()

def pipe():
    read, write = os.pipe()
    thread = later(lambda: os.write(write, b"x"))
    os.read(read, 1)
    thread.join()

def poll():
    select.poll().poll(int(ASLEEP_S * 1000))

def socket_():
    ours, theirs = socket.socketpair()
    thread = later(lambda: theirs.send(b"x"))
    ours.recv(1)
    thread.join()

def child():
    pid = os.fork()
    if not pid:
        time.sleep(ASLEEP_S)
        os._exit(0)
    os.waitpid(pid, 0)

def flock():
    path = os.path.join(directory, f"lock-{os.getpid()}")
    locked, taken = os.pipe()
    pid = os.fork()
    if not pid:
        fcntl.flock(os.open(path, os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)
        os.write(taken, b"x")
        time.sleep(ASLEEP_S)
        os._exit(0)
    os.read(locked, 1)
    own = os.open(path, os.O_CREAT | os.O_RDWR)
    fcntl.flock(own, fcntl.LOCK_EX)
    os.close(own)
    os.waitpid(pid, 0)

def sync():
    os.pwrite(plain, b"x" * 4096, 0)
    os.fdatasync(plain)

plain = parent = None
WAITS = {"timer": timer, "futex": futex, "pipe": pipe, "poll": poll, "socket": socket_, "child": child, "flock": flock, "sync": sync}
PLACES = 3

def work(wait, place):
    for at in range(PLACES):
        WAITS[wait]() if at == place else busy()

def statement(wait, place, database):
    database.execute(f"SELECT {wait}_{place}()").fetchall()

def mark(wait, place, _):
    begin = now()
    work(wait, place)
    end = now()
    fd = int(os.environ["FATHOM_MARKS_FD"])
    memory = marks(fd)
    nth = struct.unpack_from("<Q", memory, 24)[0]
    struct.pack_into("<Q", memory, 24, nth + 1)
    at = 64 * (nth + 1)
    struct.pack_into("<QQIIQ", memory, at, begin, 0, os.getpid(), threading.get_native_id(), nth)
    memory[at + 32:at + 64] = f"{wait} {place}".encode().ljust(32, b"\0")
    struct.pack_into("<Q", memory, at + 8, end)

memories = {}
def marks(fd):
    if fd not in memories:
        memories[fd] = mmap.mmap(fd, os.fstat(fd).st_size)
    return memories[fd]

# What SQLite does with a rollback journal, by a program in which no SQLite can be found. With a WAL, a pause of 10 ms ends a transaction.
def inferred(wait, place, _):
    database, journal = (os.path.join(directory, f"{wait}{place}.db{suffix}") for suffix in ("", "-journal"))
    file = os.open(database, os.O_CREAT | os.O_RDWR)
    log = os.open(journal, os.O_CREAT | os.O_RDWR)
    os.pwritev(log, [b"j" * 512], 0, os.RWF_DSYNC if (wait, place) == ("sync", 0) else 0)
    for at in range(PLACES):
        if at == place and (wait, place) != ("sync", 0):
            os.fdatasync(log) if wait == "sync" else WAITS[wait]()
        else:
            busy()
    os.pwrite(file, b"d" * 4096, 0)
    os.fdatasync(file)
    os.unlink(journal)
    os.fsync(parent)

def call(wait, place, _):
    if wait == "sync":
        file = os.open(os.path.join(directory, f"durable{place}"), os.O_CREAT | os.O_RDWR | (os.O_DSYNC if place == 0 else 0))
        os.pwrite(file, b"x" * 4096, 0)
        if place == 1:
            os.fsync(file)
        elif place == 2:
            os.fdatasync(file)

COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def function(wait, place, _):
    def compare(a, b):
        work(wait, place)
        return 0
    two = (ctypes.c_int * 2)(1, 2)
    ctypes.CDLL(None).qsort(two, ctypes.c_size_t(2), ctypes.c_size_t(4), COMPARE(compare))

def perform(kind):
    global plain, parent
    parent = os.open(directory, os.O_RDONLY)
    plain = os.open(os.path.join(directory, f"plain-{kind}"), os.O_CREAT | os.O_RDWR)
    database = None
    if kind == "mark":
        # From now on, the recorder knows when threads sleep.
        marks(int(os.environ["FATHOM_MARKS_FD"]))
    if kind == "statement":
        database = sqlite3.connect(":memory:")
        for wait in WAITS:
            for place in range(PLACES):
                database.create_function(f"{wait}_{place}", 0, lambda wait=wait, place=place: work(wait, place))
    for wait in WAITS:
        for place in range(PLACES):
            before = now()
            delayed = queued()
            begin, used = now(), cpu()
            globals()[kind](wait, place, database)
            end, used = now(), cpu() - used
            delayed = queued() - delayed
            # What of it was not between begin and end, at most.
            unsure = begin - before + now() - end
            print(os.getpid(), kind, wait, place, begin, end, used, delayed, unsure, flush=True)
    os._exit(0)

for kind in kinds:
    pid = os.fork()
    if not pid:
        perform(kind)
    _, status = os.waitpid(pid, 0)
    if status:
        sys.exit(f"{kind}: {status}")
