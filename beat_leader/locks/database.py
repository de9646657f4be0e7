"""DatabaseLock: the lease is one row, and the database's clock ends it.

Each step is one UPDATE whose condition names what it may change, committed by itself, and a SELECT that tells
what it came to. A connection that broke may have committed its statement, and is asked once more: to win
twice makes a later epoch, to renew or to resign twice is the same as once.

Whoever stands or leads keeps a connection of its own open: a server that takes no new ones ends no term.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import Error
from django.utils.connection import ConnectionDoesNotExist

from beat_leader.conf import beat_settings
from beat_leader.lock import LockUnavailable, Standing
from beat_leader.models.lease import Lease
from hardening.core.connection import KeptConnection
from hardening.core.statements import OnDatabase, Statements

__all__ = ["DatabaseLock"]

T = TypeVar("T")

_CONNECT_SECONDS = 2

_LOOK = """
SELECT {clock}, l.{holder}, l.{epoch}, l.{ends} FROM (SELECT 1 AS one) AS o
LEFT JOIN {table} AS l ON l.{name} = %s
"""
_WIN = """
UPDATE {table} SET {holder} = %s, {ends} = {clock} + %s,
    {epoch} = CASE WHEN {epoch} < %s THEN %s ELSE {epoch} END + 1
WHERE {name} = %s AND ({holder} IN ('', %s) OR {ends} <= {clock})
"""
_FIRST = "INSERT INTO {table} ({name}, {holder}, {epoch}, {ends}) VALUES (%s, %s, %s, {clock} + %s)"
_RENEW = """
UPDATE {table} SET {ends} = {clock} + %s
WHERE {name} = %s AND {holder} = %s AND {epoch} = %s AND {ends} > {clock}
"""
_RESIGN = """
UPDATE {table} SET {holder} = '', {ends} = 0
WHERE {name} = %s AND {holder} = %s AND {epoch} = %s AND {ends} > {clock}
"""


class _Lost(LockUnavailable):
    """Another was faster: it made the row, or the database undid our statement for its sake."""


class DatabaseLock(OnDatabase):
    """A leader lock in the table of `beat_leader.models.Lease`."""

    model = Lease
    keeps = "the leader lock of Beat"
    columns = ("name", "holder", "epoch", "ends")
    unavailable = LockUnavailable
    busy = LockUnavailable
    lost = _Lost

    def __init__(self, database: str | None = None, name: str = "beat") -> None:
        """`database`: an alias; None: BEAT_LEADER["DATABASE"], else where Django's routers put it. `name`: of
        the lock, where several projects share a database."""
        super().__init__(database or beat_settings().database)
        self._name = name
        self._kept = KeptConnection(_CONNECT_SECONDS)

    def acquire(self, holder: str, *, lease_seconds: float, at_least: int = 0) -> Standing:
        """Two statements, and a third for the first of all terms."""

        def work(sql: Statements) -> Standing:
            if not sql.changes(_WIN, holder, lease_seconds, at_least, at_least, self._name, holder):
                there = self._look(sql)
                if there.epoch:
                    return there
                sql.changes(_FIRST, self._name, holder, at_least + 1, lease_seconds)
            return self._look(sql)

        return self._settled(work)

    def renew(self, holder: str, epoch: int, *, lease_seconds: float) -> Standing:
        """Two statements."""

        def work(sql: Statements) -> Standing:
            renewed = sql.changes(_RENEW, lease_seconds, self._name, holder, epoch)
            there = self._look(sql)
            if renewed or (there.holder, there.epoch) != (holder, epoch):
                return there
            # It was over, and the clock has been set back since: what the row says now was not renewed.
            return replace(there, holder="", remaining_seconds=0.0)

        return self._settled(work)

    def resign(self, holder: str, epoch: int) -> bool:
        """One statement."""
        try:
            return self._keeping(lambda sql: sql.changes(_RESIGN, self._name, holder, epoch))
        except _Lost:
            return False

    def look(self) -> Standing:
        """One statement that only reads."""
        return self._do(self._look)

    def close(self) -> None:
        """Close this thread's connections, unless one is in a transaction of the caller's."""
        self._kept.close()
        super().close()

    def _settled(self, work: Callable[[Statements], Standing]) -> Standing:
        try:
            return self._keeping(work)
        except _Lost:
            return self._keeping(self._look)

    def _keeping(self, work: Callable[[Statements], T]) -> T:
        alias = self._alias()
        try:
            with self._kept.in_place(alias):
                return self._do(work)
        except (Error, ImproperlyConfigured, ConnectionDoesNotExist) as exc:
            raise LockUnavailable(self._why(alias, exc)) from exc

    def _look(self, sql: Statements) -> Standing:
        now, holder, epoch, ends = sql.first(_LOOK, self._name)
        led = bool(holder) and float(ends) > float(now)
        return Standing(
            holder=str(holder) if led else "",
            epoch=int(epoch or 0),
            remaining_seconds=float(ends) - float(now) if led else 0.0,
            now=float(now),
        )
