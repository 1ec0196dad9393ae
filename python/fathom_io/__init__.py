"""Counts what a piece of Python asks of files: syncs, calls, bytes, SQL statements. Needs the program `fathom`, and no root.

    import fathom_io

    with fathom_io.counting() as counts:
        order.save()
    assert counts.fsyncs <= 1, counts

In a test: the fixture `fathom` (fathom_io.pytest_plugin). Tags for statements (sqlcommenter): `tag`.
"""

from ._counter import Counts, NotCounted, counting
from ._statements import Connection, Statement, connect, tag

__all__ = ["Connection", "Counts", "NotCounted", "Statement", "connect", "counting", "tag"]
