"""Runs a program on its own terminal, types the lines of stdin, and prints what the terminal shows.

    python3 terminal.py PROGRAM ARGUMENT...

Each line is typed when the program has been quiet for a while, so that it is read as typed and not as pasted.
"""

import os
import pty
import select
import sys

typed = sys.stdin.buffer.read().splitlines(keepends=True)
child, terminal = pty.fork()
if child == 0:
    os.environ["TERM"] = "xterm"
    os.execvp(sys.argv[1], sys.argv[1:])


def shown(quiet):
    while select.select([terminal], [], [], quiet)[0]:
        try:
            data = os.read(terminal, 65536)
        except OSError:
            return False
        if not data:
            return False
        sys.stdout.buffer.write(data)
    return True


going = shown(3)
for line in typed:
    if not going:
        break
    for part in line.replace(b"\t", b"\0\t\0").split(b"\0"):
        if part:
            os.write(terminal, part.replace(b"\n", b"\r"))
            going = shown(1.5)
while going:
    going = shown(60) and False
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
