# A program without SQL: five threads that compute and wait for what the kernel can show. Prints, as JSON, what the kernel counted for the
# process: CPU time (getrusage), and time runnable and waiting for a processor (schedstat of all threads, which are still there); and for
# how long, at least, it waited for each thing.
import json, os, resource, select, socket, sys, threading, time

amount = float(sys.argv[1])
done = threading.Barrier(6)
gate = threading.Lock()
reads, writes = os.pipe()
near, far = socket.socketpair()
polled, poke = os.pipe()
waits = {}


def waiting(name, wait):
    start = time.perf_counter()
    wait()
    waits[name] = time.perf_counter() - start
    done.wait()
    end.wait()


def compute():
    until = time.thread_time() + amount
    while time.thread_time() < until:
        sum(range(100))


end = threading.Event()
gate.acquire()
for name, wait in [
    ("futex", gate.acquire),
    ("pipe", lambda: os.read(reads, 1)),
    ("socket", lambda: near.recv(1)),
    ("poll", lambda: select.select([polled], [], [])),
    ("timer", lambda: time.sleep(amount)),
]:
    threading.Thread(target=waiting, args=(name, wait), daemon=True).start()
compute()
time.sleep(amount / 2)
gate.release()
os.write(writes, b"x")
far.send(b"x")
os.write(poke, b"x")
done.wait()
waited = 0
for thread in os.listdir("/proc/self/task"):
    with open("/proc/self/task/%s/schedstat" % thread) as file:
        waited += int(file.read().split()[1]) / 1e9
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"cpu": usage.ru_utime + usage.ru_stime, "run queue": waited, "waits": waits}), flush=True)
os._exit(0)
