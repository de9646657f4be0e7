"""A write that commits on its own, whatever the caller's transaction does or did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["committing", "drop_connection"]


@contextmanager
def committing(alias: str) -> Iterator[None]:
    """Run the block in one transaction on `alias`, committed when the block ends.

    When this thread's connection is inside a transaction (perhaps a broken one), the block gets a
    fresh connection, swapped in for its time and closed after it.

    An SQLite database in memory is the one exception: a second connection could not write while the
    first is in a transaction, so there the block is a savepoint and shares the caller's fate. Such
    databases exist in tests only.
    """
    current = connections[alias]
    if _is_free(current) or _is_in_memory(current):
        with transaction.atomic(using=alias):
            yield
        return
    private = connections.create_connection(alias)
    connections[alias] = private
    try:
        with transaction.atomic(using=alias):
            yield
    finally:
        connections[alias] = current
        private.close()


def drop_connection(alias: str) -> None:
    """Close this thread's connection, so that the next use opens a new one. Keeps one that is in a transaction."""
    current = connections[alias]
    if not current.in_atomic_block:
        current.close()


def _is_free(connection: BaseDatabaseWrapper) -> bool:
    return not connection.in_atomic_block and not connection.needs_rollback and connection.get_autocommit()


def _is_in_memory(connection: BaseDatabaseWrapper) -> bool:
    # Only SQLite's wrapper knows the question.
    is_in_memory_db = getattr(connection, "is_in_memory_db", None)
    return is_in_memory_db is not None and bool(is_in_memory_db())
