"""A store that fails: a proxy in front of an S3 store on loopback that injects the faults of networks and stores into its requests.

    python3 faulty_store.py HOST:PORT MODE SEED

Prints its own port. MODE: flaky (errors, resets before and after the request was done, truncated responses, delays), down (503 to
all), hang (no response, ever), slow (each response in pieces, with pauses). GET /faults returns how often it did what.
"""

import collections
import http.client
import http.server
import json
import random
import socket
import struct
import sys
import threading
import time

UPSTREAM, MODE = sys.argv[1], sys.argv[2]
RANDOM, LOCK, DID = random.Random(int(sys.argv[3])), threading.Lock(), collections.Counter()
# The faults of `flaky`, in percent of requests.
FAULTS = [("error 500", 8), ("error 503", 8), ("reset before", 6), ("reset after", 6), ("cut short", 4), ("late", 6)]


def drawn():
    if MODE != "flaky":
        return MODE
    with LOCK:
        at = RANDOM.uniform(0, 100)
    for name, percent in FAULTS:
        at -= percent
        if at < 0:
            return name
    return "nothing"


class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def error(self, status):
        body = b"<Error><Code>SlowDown</Code><Message>made up</Message></Error>"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def serve(self):
        if self.path == "/faults":
            body = json.dumps(DID).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        fault = drawn()
        with LOCK:
            DID[fault] += 1
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            sent = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                sent += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if fault == "hang":
            # A fixed wait: longer than any client's timeout.
            time.sleep(600)
        if fault == "down":
            return self.error(503)
        if fault.startswith("error"):
            return self.error(int(fault[-3:]))
        if fault == "reset before":
            return self.reset()
        upstream = http.client.HTTPConnection(UPSTREAM, timeout=60)
        # A strict store treats two lengths, one of them with a lower-case name, as none.
        ours = ("transfer-encoding", "connection", "content-length")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ours}
        headers["Content-Length"] = str(len(sent))
        upstream.request(self.command, self.path, body=sent, headers=headers)
        answer = upstream.getresponse()
        body = answer.read()
        if fault == "reset after":
            return self.reset()
        if fault == "late":
            # A fixed wait: it tests a late response.
            time.sleep(0.3)
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault == "cut short" and len(body) > 1:
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            return self.reset()
        if fault == "slow":
            step = max(1, len(body) // 5)
            for at in range(0, len(body), step):
                self.wfile.write(body[at : at + step])
                self.wfile.flush()
                # A fixed wait: it tests a slow response.
                time.sleep(0.03)
            return
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
server.daemon_threads = True
print(server.server_port, flush=True)
server.serve_forever()
