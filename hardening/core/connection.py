"""A write that commits on its own, whatever the caller's transaction does or did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["drop_connection", "own_connection"]


@contextmanager
def own_connection(alias: str) -> Iterator[None]:
    """Inside the block this thread's connection to `alias` is in no transaction and commits by itself.

    When it is inside one (perhaps a broken one), the block gets a fresh connection, swapped in for its
    time and closed after it.

    An SQLite database in memory is the one exception: a second connection could not write while the
    first is in a transaction, so there the block shares the caller's fate. Such databases exist in
    tests only. An SQLite file has one writer: when the caller's transaction holds it, the block fails.
    """
    current = connections[alias]
    if _is_free(current) or _is_in_memory(current):
        yield
        return
    private = connections.create_connection(alias)
    connections[alias] = private
    try:
        private.set_autocommit(True)
        yield
    finally:
        connections[alias] = current
        private.close()


def drop_connection(alias: str) -> None:
    """Close this thread's connection, unless it is in a transaction; the next use opens a new one."""
    current = connections[alias]
    if not current.in_atomic_block:
        current.close()


def _is_free(connection: BaseDatabaseWrapper) -> bool:
    return not connection.in_atomic_block and not connection.needs_rollback and connection.get_autocommit()


def _is_in_memory(connection: BaseDatabaseWrapper) -> bool:
    # Only SQLite's wrapper knows the question.
    is_in_memory_db = getattr(connection, "is_in_memory_db", None)
    return is_in_memory_db is not None and bool(is_in_memory_db())
