#!/usr/bin/env python3
"""A fake of the adb server with its devices, for the real adb client (ANDROID_ADB_SERVER_PORT names its port).

    server.py PORTFILE DIRECTORY MACHINE SERIAL=STATE[:FEATURES]...

It is exact in the protocol between client and server (hexadecimal lengths, OKAY and FAIL, host services, transports), the shell of
version 2 (packets of standard input, both outputs and the exit status) and the file service (STAT, SEND, DATA, DONE). The device is
fake: commands run on this machine, in busybox's shell with only busybox's tools, /data/local/tmp is DIRECTORY, and `uname -m` prints
MACHINE. A device in a state other than `device` fails requests as a real server does. No phone is involved.
"""

import os
import socket
import struct
import subprocess
import sys
import threading

STATES = {
    "unauthorized": "device unauthorized.\nThis adb server's $ADB_VENDOR_KEYS is not set\nTry 'adb kill-server' if that seems wrong.\nOtherwise check for a confirmation dialog on your device.",
    "offline": "device offline",
}


def exactly(sock, length):
    data = b""
    while len(data) < length:
        part = sock.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return data


class Device:
    def __init__(self, directory, machine):
        self.directory = directory
        self.tools = os.path.join(directory, ".tools")
        os.makedirs(self.tools, exist_ok=True)
        applets = subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True, check=True).stdout.split()
        for name in applets:
            os.symlink("/bin/busybox", os.path.join(self.tools, name))
        # A function, since busybox's shell does not look up files for its own tools.
        self.uname = f'uname() {{ [ "$1" = -m ] && echo {machine} || echo Linux {machine}; }}; '

    def path(self, text):
        return text.replace("/data/local/tmp", os.path.join(self.directory, "tmp"))

    def shell(self, sock, line):
        process = subprocess.Popen(
            ["/bin/busybox", "sh", "-c", self.uname + self.path(line)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": self.tools, "HOME": "/"},
        )
        lock = threading.Lock()

        def packet(kind, data):
            with lock:
                try:
                    sock.sendall(struct.pack("<BI", kind, len(data)) + data)
                except OSError:
                    pass

        def output(kind, stream):
            while data := stream.read1(65536):
                packet(kind, data)

        def commands():
            try:
                while True:
                    kind, length = struct.unpack("<BI", exactly(sock, 5))
                    data = exactly(sock, length)
                    if kind == 0:
                        process.stdin.write(data)
                        process.stdin.flush()
                    elif kind == 4:
                        break
            except (EOFError, OSError):
                pass
            # The client's input ended, or the client is gone; that kills no process.
            try:
                process.stdin.close()
            except OSError:
                pass

        threads = [threading.Thread(target=output, args=a) for a in ((1, process.stdout), (2, process.stderr))]
        for thread in threads:
            thread.start()
        threading.Thread(target=commands, daemon=True).start()
        for thread in threads:
            thread.join()
        status = process.wait()
        packet(3, bytes([status if status >= 0 else 128 - status]))

    def sync(self, sock):
        while True:
            kind, length = struct.unpack("<4sI", exactly(sock, 8))
            name = exactly(sock, length).decode() if kind != b"QUIT" else ""
            if kind == b"STAT":
                try:
                    about = os.stat(self.path(name))
                    numbers = about.st_mode, about.st_size & 0xFFFFFFFF, int(about.st_mtime)
                except OSError:
                    numbers = 0, 0, 0
                sock.sendall(b"STAT" + struct.pack("<III", *numbers))
            elif kind == b"SEND":
                self.receive(sock, name)
            else:
                return

    def receive(self, sock, name):
        path, mode = name.rsplit(",", 1)
        trouble, file = None, None
        try:
            file = open(self.path(path), "wb", buffering=0)
            os.chmod(file.name, int(mode) & 0o777)
        except OSError as error:
            trouble = f"couldn't create file: {error.strerror}"
        while True:
            kind, length = struct.unpack("<4sI", exactly(sock, 8))
            if kind == b"DONE":
                break
            data = exactly(sock, length)
            try:
                if not trouble:
                    while data:
                        data = data[file.write(data) :]
            except OSError as error:
                trouble = f"remote write failed: {error.strerror}"
        if file:
            file.close()
        if trouble:
            os.path.exists(self.path(path)) and os.unlink(self.path(path))
            sock.sendall(b"FAIL" + struct.pack("<I", len(trouble)) + trouble.encode())
        else:
            sock.sendall(b"OKAY" + struct.pack("<I", 0))


class Server:
    def __init__(self, device, states):
        self.device = device
        # Serial numbers, states, features.
        self.states = states

    def fail(self, sock, why):
        sock.sendall(b"FAIL" + f"{len(why):04x}{why}".encode())

    def okay(self, sock, text):
        sock.sendall(b"OKAY" + f"{len(text):04x}{text}".encode())

    def find(self, sock, serial):
        if serial is None and len(self.states) != 1:
            self.fail(sock, "more than one device/emulator" if self.states else "no devices/emulators found")
        elif serial is not None and serial not in self.states:
            self.fail(sock, f"device '{serial}' not found")
        else:
            serial = serial or next(iter(self.states))
            state = self.states[serial][0]
            if state == "device":
                return serial
            self.fail(sock, STATES.get(state, f"device still {state}"))
        return None

    def serve(self, sock):
        try:
            while True:
                request = exactly(sock, int(exactly(sock, 4), 16)).decode()
                if request == "host:version":
                    return self.okay(sock, "0029")
                if request in ("host:devices", "host:devices-l"):
                    return self.okay(sock, "".join(f"{s}\t{state}\n" for s, (state, _) in self.states.items()))
                if request.endswith(":features"):
                    serial = request.removeprefix("host-serial:").removesuffix(":features")
                    serial = self.find(sock, None if request.startswith("host:") else serial)
                    return serial and self.okay(sock, self.states[serial][1])
                if request.startswith(("host:transport", "host:tport")):
                    serial = request.removeprefix("host:").removeprefix("tport:serial:").removeprefix("transport:")
                    found = self.find(sock, None if request.endswith(("any", "-usb", "-local")) else serial)
                    if not found:
                        return None
                    sock.sendall(b"OKAY" + (bytes(8) if "tport" in request else b""))
                elif request.startswith("shell,v2") and "raw" in request.split(":")[0]:
                    sock.sendall(b"OKAY")
                    return self.device.shell(sock, request.split(":", 1)[1])
                elif request == "sync:":
                    sock.sendall(b"OKAY")
                    return self.device.sync(sock)
                else:
                    return self.fail(sock, f"unknown service {request}")
        except (EOFError, OSError):
            return None
        finally:
            # Another thread may be reading: closing alone would not notify the client.
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()


def main():
    portfile, directory, machine, *devices = sys.argv[1:]
    states = {}
    for entry in devices:
        serial, state = entry.split("=", 1)
        state, _, features = state.partition(":")
        states[serial] = (state, features if features else "shell_v2,cmd")
    os.makedirs(os.path.join(directory, "tmp"), exist_ok=True)
    server = Server(Device(directory, machine), states)
    listener = socket.create_server(("127.0.0.1", 0))
    with open(portfile + ".new", "w") as file:
        file.write(str(listener.getsockname()[1]))
    os.rename(file.name, portfile)
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=server.serve, args=(sock,), daemon=True).start()


if __name__ == "__main__":
    main()
