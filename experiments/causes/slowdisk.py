"""A directory for one file, on a device with known service times: a FUSE server that uses /dev/fuse directly, since few machines have a
library for it.

argv: the directory, the microseconds that a write and a sync take, an N such that every Nth of them takes twenty times as long (0: none),
and the number of requests served at a time. The times apply from the first line on standard input, which it acknowledges; before,
requests take none. A loop disk whose file is here takes these times for its writes and flushes, so that the speed of the device is
known whatever else the machine does. The data is in memory. Ends, and unmounts, at the end of its standard input.
"""

import ctypes
import errno
import os
import queue
import signal
import struct
import sys
import threading
import time

# Whoever interrupts the trials stops the disk first, and then this program by closing its standard input.
signal.signal(signal.SIGINT, signal.SIG_IGN)
directory, write_s, sync_s, tail = sys.argv[1], int(sys.argv[2]) / 1e6, int(sys.argv[3]) / 1e6, int(sys.argv[4])
at_once = int(sys.argv[5])
LOOKUP, FORGET, GETATTR, SETATTR, UNLINK, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC = 1, 2, 3, 4, 10, 14, 15, 16, 17, 18, 20
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, CREATE, INTERRUPT, DESTROY, BATCH_FORGET, FALLOCATE = 25, 26, 27, 28, 29, 35, 36, 38, 42, 43
ROOT, FILE = 1, 2
HEADER = struct.Struct("<IIQQIIIHH")
libc = ctypes.CDLL(None, use_errno=True)
device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
options = "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % device
if libc.mount(b"fathom-slowdisk", directory.encode(), b"fuse", 6, options.encode()) != 0:
    sys.exit("mounting %s: %s" % (directory, os.strerror(ctypes.get_errno())))

data = bytearray()
there = False
slow = False
served = 0


def take(seconds):
    global served
    if slow and seconds:
        served += 1
        time.sleep(seconds * (20 if tail and served % tail == 0 else 1))


def attributes(node):
    size, mode = (len(data), 0o100600) if node == FILE else (0, 0o40700)
    return struct.pack("<6Q10I", node, size, (size + 511) // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def entry():
    return struct.pack("<4Q2I", FILE, 1, 0, 0, 0, 0) + attributes(FILE)


def resize(size):
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def answer(code, node, body):
    """Returns the reply: an error number, or bytes; None where the kernel expects none."""
    global there
    if code == INIT:
        # Allow writes of more than a page, and asynchronous direct ones, or a loop disk would send one after the other.
        flags = 1 << 5 | (1 << 15 if at_once > 1 else 0)
        return struct.pack("<4I2H2I2H2I24x", 7, 31, 1 << 17, flags, 16, 12, 1 << 17, 1, 0, 0, 0, 0)
    if code in (FORGET, BATCH_FORGET, INTERRUPT):
        return None
    if code == LOOKUP:
        return entry() if there else errno.ENOENT
    if code == GETATTR:
        return struct.pack("<Q2I", 0, 0, 0) + attributes(node)
    if code == SETATTR:
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        if valid & 8 and node == FILE:
            resize(size)
        return struct.pack("<Q2I", 0, 0, 0) + attributes(node)
    if code == CREATE:
        there = True
        return entry() + struct.pack("<QII", 0, 2, 0)
    if code in (OPEN, OPENDIR):
        return struct.pack("<QII", 0, 2, 0)
    if code == UNLINK:
        there = False
        return b""
    if code == READ:
        _, offset, size = struct.unpack_from("<QQI", body)
        return bytes(data[offset : offset + size])
    if code == READDIR:
        return b""
    if code == WRITE:
        _, offset, size = struct.unpack_from("<QQI", body)
        if offset + size > len(data):
            resize(offset + size)
        data[offset : offset + size] = body[40 : 40 + size]
        return struct.pack("<II", size, 0)
    if code == FSYNC:
        return b""
    if code == STATFS:
        return struct.pack("<5Q4I24x", 1 << 20, 1 << 20, 1 << 20, 99, 99, 4096, 255, 4096, 0)
    if code in (RELEASE, RELEASEDIR, FLUSH, DESTROY):
        return b""
    return errno.ENOSYS


def end():
    global slow
    for _ in sys.stdin:
        slow = True
        print("slow", flush=True)
    libc.umount2(directory.encode(), 2)
    os._exit(0)


def reply(code, unique, error, body):
    take({WRITE: write_s, FSYNC: sync_s}.get(code, 0))
    os.write(device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)


# Requests that take time, if several are served at a time.
waiting = queue.SimpleQueue()


def serve():
    while True:
        reply(*waiting.get())


threading.Thread(target=end, daemon=True).start()
for _ in range(at_once if at_once > 1 else 0):
    threading.Thread(target=serve, daemon=True).start()
print("ready", flush=True)
while True:
    try:
        request = os.read(device, (1 << 17) + 4096)
    except OSError as error:
        if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
            continue
        os._exit(0)
    _, code, unique, node, *_ = HEADER.unpack_from(request)
    result = answer(code, node, request[HEADER.size :])
    if result is None:
        continue
    error, body = (-result, b"") if isinstance(result, int) else (0, result)
    if at_once > 1 and code in (WRITE, FSYNC):
        waiting.put((code, unique, error, body))
    else:
        reply(code, unique, error, body)
