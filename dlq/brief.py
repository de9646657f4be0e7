"""Database connections on which nobody waits long, whatever the database does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from django.db import connections

from hardening.core.connection import bounded_connection, brief_connection, own_connection

__all__ = ["slice_connection", "unwaiting_connection"]

_ANSWER_SECONDS = 3
_SQLITE_PATIENCE_MS = 100


def unwaiting_connection(alias: str, answer_seconds: int) -> AbstractContextManager[None]:
    """Inside the block the connection commits by itself, and a server that is silent is an error after
    `answer_seconds`.

    A file does not fall silent, but it has one writer, for whom nobody may wait in SQLite's code: all
    greenlets would wait along. So a locked file is an error at once, for the caller to try again.
    """
    if connections[alias].vendor == "sqlite":
        return brief_connection(alias)
    return bounded_connection(alias, answer_seconds)


@contextmanager
def slice_connection(alias: str) -> Iterator[None]:
    """For a slice of work in a worker's parent: the same after 3 s, with a short wait for a locked file."""
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
