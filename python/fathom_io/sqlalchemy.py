"""SQLAlchemy: tags the statements of an engine, and collects them.

    engine = sqlalchemy.create_engine("sqlite:///orders.db")
    fathom_io.sqlalchemy.instrument(engine)
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from . import _statements


def instrument(engine: Engine) -> None:
    """Tags and collects the statements of an engine; also BEGIN and COMMIT, which are the dialect's."""
    event.listen(engine, "before_cursor_execute", _tag, retval=True)
    event.listen(engine, "commit", lambda _: _statements.collect("COMMIT"))


def _tag(conn: Any, _cursor: Any, sql: str, parameters: Any, _context: Any, _many: bool) -> tuple[str, Any]:
    text = _statements.tagged(sql)
    _statements.collect(text)
    added = text[len(sql) :] if text.startswith(sql) else ""
    # These drivers format the text.
    if conn.dialect.paramstyle in ("format", "pyformat"):
        text = sql + added.replace("%", "%%")
    return text, parameters
