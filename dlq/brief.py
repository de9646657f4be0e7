"""A database connection for a slice of work in a worker's parent: short waits, whatever the database does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from hardening.core.connection import bounded_connection, own_connection

__all__ = ["slice_connection"]

_ANSWER_SECONDS = 3
_SQLITE_PATIENCE_MS = 100


@contextmanager
def slice_connection(alias: str) -> Iterator[None]:
    """Inside the block the connection commits by itself; a server that is silent is an error after 3 s."""
    if connections[alias].vendor != "sqlite":
        with bounded_connection(alias, _ANSWER_SECONDS):
            yield
        return
    # A file does not fall silent; it is locked by whoever writes.
    with own_connection(alias), connections[alias].cursor() as cursor:
        (patience,) = cursor.execute("PRAGMA busy_timeout").fetchone()
        cursor.execute(f"PRAGMA busy_timeout = {min(patience, _SQLITE_PATIENCE_MS)}")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {patience}")
