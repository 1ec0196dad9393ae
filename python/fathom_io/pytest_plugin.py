"""The fixture `fathom` for pytest: counts what a test asks of files, and tags its statements with the test's name.

    def test_save(fathom):
        order.save()
        assert fathom.fsyncs <= 1
        assert len(fathom.queries) == 1

Counts are those since the test began. The setup of fixtures that are named before `fathom` does not count. `fathom.reset()` begins anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import _counter, _statements
from ._counter import Counts, NotCounted


class Fathom:
    """What the test has asked of files so far."""

    def __init__(self, counter: _counter._Counter) -> None:
        self._counter = counter
        self._statements: list[_statements.Statement] = []
        self._before: dict[str, int] = {}
        self.reset()

    def reset(self) -> None:
        """Forgets what was counted."""
        self._statements.clear()
        self._before = self._counter.read()

    @property
    def counts(self) -> Counts:
        """All counts, up to now."""
        now, before = self._counter.read(), self._before
        by_kind = {kind: n - before.get(kind, 0) for kind, n in now.items() if n != before.get(kind, 0)}
        return Counts(by_kind, list(self._statements))

    @property
    def fsyncs(self) -> int:
        """Calls that wait for the medium."""
        return self.counts.fsyncs

    @property
    def bytes_written(self) -> int:
        """Bytes that calls wrote to files."""
        return self.counts.bytes_written

    @property
    def queries(self) -> list[_statements.Statement]:
        """The SQL statements, in order."""
        return list(self._statements)

    def __repr__(self) -> str:
        return repr(self.counts)


@pytest.fixture
def fathom(request: pytest.FixtureRequest) -> Iterator[Fathom]:
    """Counts what the test asks of files; skips the test, with the reason, where that is not possible."""
    try:
        one = Fathom(_counter._running_counter())
    except NotCounted as why:
        pytest.skip(f"fathom cannot count here: {why}")
    with _statements.collecting(one._statements), _statements.tag(test=request.node.name):
        yield one
