"""Counts the calls of this process on files: the program `fathom` attaches to it (ptrace) and answers how many it has seen."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator

from . import _statements
from ._statements import Statement

#: prctl(2): who may attach where only ancestors may (Yama).
PR_SET_PTRACER = 0x59616D61
SYNCS = ("fsync", "fdatasync", "sync_file_range", "sync", "msync")


class NotCounted(RuntimeError):
    """The calls cannot be counted here; the text says why."""


@dataclasses.dataclass
class Counts:
    """What was counted: complete once the `with` block has ended."""

    #: Calls and bytes by kind of file, as in a contract of `fathom check`: `fdatasync WAL`, `bytes written database`.
    by_kind: dict[str, int] = dataclasses.field(default_factory=dict)
    #: SQL statements, in order; those of sqlite3 connections opened by `fathom_io.connect`, SQLAlchemy and Django, once instrumented.
    queries: list[Statement] = dataclasses.field(default_factory=list)

    def calls(self, *names: str) -> int:
        """The number of calls of these names, on any kind of file."""
        return sum(n for kind, n in self.by_kind.items() if kind.split(" ", 1)[0] in names)

    @property
    def fsyncs(self) -> int:
        """Calls that wait for the medium: fsync, fdatasync and their kind."""
        return self.calls(*SYNCS)

    @property
    def bytes_written(self) -> int:
        """Bytes that calls wrote to files."""
        return sum(n for kind, n in self.by_kind.items() if kind.startswith("bytes written"))

    @property
    def bytes_read(self) -> int:
        """Bytes that calls read from files."""
        return sum(n for kind, n in self.by_kind.items() if kind.startswith("bytes read"))


class _Counter:
    """The attached program: one for the whole process, since a process has one tracer."""

    def __init__(self) -> None:
        program = os.environ.get("FATHOM") or shutil.which("fathom")
        if not program:
            raise NotCounted("the program `fathom` is not in PATH: pip install fathom-io, or set FATHOM")
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            [program, "check", "attach", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C is for the test; this ends when its input does.
            start_new_session=True,
        )
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(self._process.pid), 0, 0, 0)
        # It attaches once it is permitted to.
        self._ask("attach")

    def is_alive(self) -> bool:
        return self._owner == os.getpid() and self._process.poll() is None

    def _ask(self, word: str) -> dict:
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin and stdout and stderr
        with self._lock:
            try:
                stdin.write(word + "\n")
                stdin.flush()
                line = stdout.readline()
            except BrokenPipeError:
                line = ""
            if not line:
                self._process.wait()
                raise NotCounted(stderr.read().strip() or "the program `fathom` has ended")
            return json.loads(line)

    def read(self) -> dict[str, int]:
        return self._ask("count")["counts"]


_counter: _Counter | None = None


def _running_counter() -> _Counter:
    global _counter
    if _counter is None or not _counter.is_alive():
        _counter = _Counter()
    return _counter


@contextlib.contextmanager
def counting() -> Iterator[Counts]:
    """Counts what the block, and other threads meanwhile, ask of files. Raises NotCounted where that is not possible."""
    counter, counts = _running_counter(), Counts()
    with _statements.collecting(counts.queries):
        before = counter.read()
        try:
            yield counts
        finally:
            after = counter.read()
            counts.by_kind = {kind: n - before.get(kind, 0) for kind, n in after.items() if n != before.get(kind, 0)}
