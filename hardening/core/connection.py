"""A write that commits on its own, whatever the caller's transaction does or did."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from .cutoff import CutOff, can_be_cut_off
from .garbage import uncollected

__all__ = ["KeptConnection", "bounded_connection", "brief_connection", "drop_connection", "own_connection"]

_TIMEOUTS = {
    "postgresql": ("connect_timeout",),
    "mysql": ("connect_timeout", "read_timeout", "write_timeout"),
    "sqlite": ("timeout",),
}
"""What the drivers of each kind of database call their time-outs."""


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
    else:
        with _swapped_in(connections.create_connection(alias), current):
            yield


@contextmanager
def bounded_connection(alias: str, seconds: int) -> Iterator[None]:
    """As `own_connection`, for a block that must not wait: a database that does not answer is an error soon.

    Connecting takes `seconds` at most for each address of the server, and so does the block from then on,
    or each of its statements, unless the OPTIONS of the entry in DATABASES have time-outs of their own.

    The caller's connection is used only where it is open and its waiting can be ended: opening it, or
    checking its health, knows no bound. Else the block gets a fresh one.
    """
    current = connections[alias]
    if _is_in_memory(current):
        yield
        return
    with CutOff(seconds) as cut_off:
        if _is_open(current) and can_be_cut_off(current.connection) and _is_free(current):
            with current.wrap_database_errors:
                cut_off.watch(current.connection)
            yield
        else:
            with _swapped_in(_bounded(connections.create_connection(alias), seconds, cut_off), current):
                yield


@contextmanager
def brief_connection(alias: str) -> Iterator[None]:
    """As `own_connection`, for a block that writes to an SQLite file and then lets others write at once.

    SQLite has one writer, and waits for it in C: all greenlets of the process wait with it, also the one
    that is the writer, if it lost its turn in the middle of its transaction. None could go on until the
    time-out. So here nobody waits: a file that is locked is an error at once, `database is locked`, and
    the caller tries again after a sleep, in which others run. And a block that has begun ends before
    another greenlet runs, as long as it does not wait for anything itself.
    """
    with own_connection(alias), uncollected(), _unwaiting(connections[alias]):
        yield


class KeptConnection:
    """A connection of this thread's own for a row of calls, each of which would else open one.

    For a worker's parent: it is closed before each fork. Opening it takes `seconds` at most for each
    address of the server.
    """

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._of_thread = threading.local()
        _kept.add(self)

    @contextmanager
    def in_place(self, alias: str) -> Iterator[None]:
        """Inside the block it is this thread's connection to `alias`, open unless that failed."""
        current = connections[alias]
        if _is_in_memory(current):
            yield
            return
        mine: BaseDatabaseWrapper = getattr(
            self._of_thread, "wrapper", None
        ) or connections.create_connection(alias)
        self._of_thread.wrapper = mine
        if mine.connection is None:
            try:
                with CutOff(self._seconds) as cut_off:
                    _bounded(mine, self._seconds, cut_off).ensure_connection()
            except BaseException:
                self.close()  # Else the next one is bounded twice, and cut off by what watched this one.
                raise
        connections[alias] = mine
        try:
            yield
        finally:
            connections[alias] = current
            if mine.connection is None:  # It broke, and is not opened again: its time-outs were for one time.
                self.close()

    def close(self) -> None:
        """Close that of this thread."""
        mine = self._of_thread.__dict__.pop("wrapper", None)
        if mine is not None:
            mine.close()


_kept: WeakSet[KeptConnection] = WeakSet()


def _close_kept() -> None:
    for each in list(_kept):
        each.close()


os.register_at_fork(before=_close_kept)


def drop_connection(alias: str) -> None:
    """Close this thread's connection, unless it is in a transaction; the next use opens a new one."""
    current = connections[alias]
    if not current.in_atomic_block:
        current.close()


@contextmanager
def _swapped_in(private: BaseDatabaseWrapper, current: BaseDatabaseWrapper) -> Iterator[None]:
    connections[current.alias] = private
    try:
        private.set_autocommit(True)
        yield
    finally:
        connections[current.alias] = current
        private.close()


@contextmanager
def _unwaiting(connection: BaseDatabaseWrapper) -> Iterator[None]:
    connection.ensure_connection()
    driver = connection.connection
    with connection.wrap_database_errors:
        # Asked, not read from the settings: the project may have changed it for a while.
        (usual,) = driver.execute("PRAGMA busy_timeout").fetchone()
        driver.execute("PRAGMA busy_timeout = 0")
    try:
        yield
    finally:
        if connection.connection is driver:
            driver.execute(f"PRAGMA busy_timeout = {int(usual)}")


def _bounded(private: BaseDatabaseWrapper, seconds: int, cut_off: CutOff) -> BaseDatabaseWrapper:
    timeouts = dict.fromkeys(_TIMEOUTS.get(private.vendor, ()), seconds)
    options: dict[str, Any] = {**timeouts, **(private.settings_dict.get("OPTIONS") or {})}
    # What a pool hands out was opened with other options.
    options.pop("pool", None)
    # A copy: the settings are those of the caller's connection as well.
    private.settings_dict = {**private.settings_dict, "OPTIONS": options}
    connect = private.get_new_connection

    def watched(params: dict[str, Any]) -> Any:
        # Here and not later: Django and the project may send statements to a connection that is new.
        made = connect(params)
        cut_off.watch(made)
        return made

    setattr(private, "get_new_connection", watched)  # noqa: B010 - mypy lets nobody assign to a method
    return private


def _is_open(connection: BaseDatabaseWrapper) -> bool:
    # The stubs of Django do not know these two.
    state: Any = connection
    return state.connection is not None and (state.health_check_done or not state.health_check_enabled)


def _is_free(connection: BaseDatabaseWrapper) -> bool:
    return not connection.in_atomic_block and not connection.needs_rollback and connection.get_autocommit()


def _is_in_memory(connection: BaseDatabaseWrapper) -> bool:
    # Only SQLite's wrapper knows the question.
    is_in_memory_db = getattr(connection, "is_in_memory_db", None)
    return is_in_memory_db is not None and bool(is_in_memory_db())
