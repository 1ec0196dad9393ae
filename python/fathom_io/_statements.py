"""SQL statements: collected while something counts, and tagged with what they belong to.

A tag is a comment in the form of sqlcommenter (https://google.github.io/sqlcommenter/spec/), which databases ignore and recordings of Fathom
keep: `INSERT INTO t VALUES (1) /*test='test_save',view='orders'*/`.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import sqlite3
import urllib.parse
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass(frozen=True)
class Statement:
    """A statement that was executed."""

    sql: str


_tags: contextvars.ContextVar[dict[str, str]] = contextvars.ContextVar("fathom_tags", default={})
_collectors: list[list[Statement]] = []


@contextlib.contextmanager
def tag(**tags: str) -> Iterator[None]:
    """Tags the statements of the block: `with tag(request="GET /orders"):`. Tags of an outer block stay."""
    token = _tags.set({**_tags.get(), **{key: value for key, value in tags.items() if value}})
    try:
        yield
    finally:
        _tags.reset(token)


@contextlib.contextmanager
def collecting(statements: list[Statement]) -> Iterator[None]:
    _collectors.append(statements)
    try:
        yield
    finally:
        # By identity: two empty lists are equal.
        _collectors[:] = [known for known in _collectors if known is not statements]


def collect(sql: str) -> None:
    """Notes a statement that was executed."""
    for collector in _collectors:
        collector.append(Statement(sql))


def _encode(text: str) -> str:
    return urllib.parse.quote(text, safe="").replace("'", "\\'")


def tagged(sql: str) -> str:
    """The statement with the tags that are set; unchanged if it has a comment already, as the specification demands."""
    tags = _tags.get()
    if not tags or "/*" in sql or "--" in sql:
        return sql
    pairs = ",".join(f"{_encode(key)}='{_encode(value)}'" for key, value in sorted(tags.items()))
    return f"{sql} /*{pairs}*/"


class _Cursor(sqlite3.Cursor):
    def execute(self, sql: str, *parameters: Any) -> _Cursor:
        super().execute(tagged(sql), *parameters)
        return self

    def executemany(self, sql: str, *parameters: Any) -> _Cursor:
        super().executemany(tagged(sql), *parameters)
        return self


class Connection(sqlite3.Connection):
    """A connection whose statements are tagged and collected; for `sqlite3.connect(..., factory=Connection)`."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        # Also those that the module itself makes: BEGIN and COMMIT.
        self.set_trace_callback(collect)

    def cursor(self, factory: Any = _Cursor) -> Any:
        return super().cursor(factory)

    def execute(self, sql: str, *parameters: Any) -> Any:
        return self.cursor().execute(sql, *parameters)

    def executemany(self, sql: str, *parameters: Any) -> Any:
        return self.cursor().executemany(sql, *parameters)


def connect(*words: Any, **named: Any) -> sqlite3.Connection:
    """`sqlite3.connect`, for a connection whose statements are tagged and collected."""
    named.setdefault("factory", Connection)
    return sqlite3.connect(*words, **named)
