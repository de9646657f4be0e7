"""Codes for a project's own rules: any code that an error carries, always as text."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from .codes import http_status
from .database_codes import database_code
from .system_codes import errno_code

__all__ = ["any_code", "as_code"]


def any_code(exc: BaseException, *, known: frozenset[str]) -> str | None:
    """The first code of the error that is in `known`, else the first one that it has.

    Tried are the name of its errno, the code of its database, its HTTP status, and its attribute `code`.
    """
    first = None
    for code in _codes(exc):
        if code in known:
            return code
        first = first or code
    return first


def as_code(value: Any) -> str | None:
    """A code as text: 503 as "503", a member of an enum by its name unless it is a text or number itself."""
    if value is None or value == "":
        return None
    if isinstance(value, Enum) and not isinstance(value, (str, int)):
        return value.name
    return str(value)


def _codes(exc: BaseException) -> Iterator[str]:
    own = getattr(exc, "code", None)
    for value in (
        errno_code(exc),
        database_code(exc),
        http_status(exc),
        own if isinstance(own, (str, int, Enum)) and not isinstance(own, bool) else None,
    ):
        code = as_code(value)
        if code is not None:
            yield code
