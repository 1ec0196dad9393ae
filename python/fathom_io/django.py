"""Django: tags the statements of a request with its method, path and view, and collects them.

    MIDDLEWARE = ["fathom_io.django.TagStatements", ...]

In tests without requests: `with fathom_io.django.tagged_statements():`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, resolve

from . import _statements


def _execute(execute: Callable, sql: str, parameters: Any, many: bool, context: dict) -> Any:
    text = _statements.tagged(sql)
    _statements.collect(text)
    # With parameters, the backend formats the text.
    added = text[len(sql) :] if text.startswith(sql) else ""
    if parameters is not None and added:
        text = sql + added.replace("%", "%%")
    return execute(text, parameters, many, context)


@contextlib.contextmanager
def tagged_statements() -> Iterator[None]:
    """Tags and collects the statements of all connections."""
    with contextlib.ExitStack() as stack:
        for connection in connections.all():
            stack.enter_context(connection.execute_wrapper(_execute))
        yield


class TagStatements:
    """Middleware that tags statements with `method`, `path` and `view`."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            view = resolve(request.path_info).view_name
        except Resolver404:
            view = ""
        with tagged_statements(), _statements.tag(method=request.method or "", path=request.path, view=view):
            return self.get_response(request)
