"""DatabaseStore: shared state in a database of the project's, where the broker is no Redis.

Each swap is one statement that names the version, committed by itself: the caller's transaction is not
touched, and its rollback takes nothing along (see `hardening.core.connection`). Reads do not see the
caller's transaction either, whose snapshot would hide what others have written since.

A document that is not there is made by an UPDATE of a row whose time is over, else by an INSERT; the
primary key lets one of several callers through. A connection that broke may have committed its
statement. So each statement takes a row with the new version for its own work, and is sent once more;
but not to a database that let us wait, since a task may wait for us.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import Error, IntegrityError, InterfaceError, OperationalError, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionDoesNotExist

from hardening.core.connection import bounded_connection, drop_connection
from hardening.models import KEY_LENGTH, State
from hardening.store import (
    ABSENT,
    Entry,
    StoreBusy,
    StoreUnavailable,
    checked_ttl,
    decoded,
    encoded,
    new_version,
)

__all__ = ["DatabaseStore"]

T = TypeVar("T")

_CLOCKS = {
    "postgresql": "EXTRACT(EPOCH FROM statement_timestamp())::double precision",
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1e6",
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
}
"""Seconds since 1970, whatever the time zone of the session: the kinds of database that we know."""

_READ = """
SELECT {clock}, s.{version}, s.{value} FROM (SELECT 1 AS one) AS o
LEFT JOIN {table} AS s ON s.{key} = %s AND s.{expires_at} > {clock}
"""
_SET = "UPDATE {table} SET {value} = %s, {version} = %s, {expires_at} = {clock} + %s WHERE {key} = %s AND "
_CHANGE = _SET + "{version} IN (%s, %s) AND {expires_at} > {clock}"
_REUSE = _SET + "({expires_at} <= {clock} OR {version} = %s)"
_CREATE = "INSERT INTO {table} ({value}, {version}, {expires_at}, {key}) VALUES (%s, %s, {clock} + %s, %s)"
_DELETE = "DELETE FROM {table} WHERE {key} = %s AND {version} = %s AND {expires_at} > {clock}"
_OVER = "SELECT {key} FROM {table} WHERE {expires_at} <= {clock} ORDER BY {expires_at} LIMIT 10"
_CLEAR = "DELETE FROM {table} WHERE {key} = %s AND {expires_at} <= {clock}"

_LOST_SIGNS = ("deadlock", "could not serialize", "record has changed")
_WAITED_SIGNS = ("locked", "lock wait timeout", "lock timeout")
_PATIENCE_SECONDS = 2
_PLAIN_KEY = re.compile(rf"[a-z0-9._:@/-]{{1,{KEY_LENGTH}}}")


class DatabaseStore:
    """Documents in the table of `hardening.models.State`. A call ends within about 5 s, also when the
    database is stopped: after 2 s as a rule, unless its entry in DATABASES has time-outs in its OPTIONS.

    Safe in prefork children, threads and greenlets: it uses the connection that Django keeps for each where
    that is open, else one for the call (see `hardening.core.connection.bounded_connection`).
    In an SQLite database in memory the state shares the fate of the caller's transaction.
    """

    def __init__(self, database: str | None = None) -> None:
        """`database` is an alias; None: where Django's routers put the model."""
        self._database = database

    def read(self, key: str) -> Entry:
        """The document, and the time of the database server, in one statement."""

        def work(sql: _Statements) -> Entry:
            now, version, text = sql.first(_READ, _column(key))
            if version is None:
                return Entry(None, ABSENT, float(now))
            return Entry(decoded(text), int(version), float(now))

        return self._do(work)

    def swap(self, key: str, *, version: int, value: Mapping[str, Any] | None, ttl_seconds: float) -> bool:
        """Put a document in the place of the one with that version. A new one also removes old rows."""
        ttl, column, new = checked_ttl(ttl_seconds), _column(key), new_version()
        if value is None:
            if version == ABSENT:
                return self.read(key).version == ABSENT
            return self._try(lambda sql: sql.changes(_DELETE, column, version))
        row = (encoded(value), new, ttl, column)
        if version == ABSENT:
            return self._try(lambda sql: _create(sql, row))
        return self._try(lambda sql: sql.changes(_CHANGE, *row, version, new))

    def close(self) -> None:
        """Close this thread's connection, unless it is in a transaction of the caller's."""
        drop_connection(self._alias())

    def _alias(self) -> str:
        return self._database or router.db_for_write(State)

    def _try(self, work: Callable[[_Statements], bool]) -> bool:
        try:
            return self._do(work)
        except _Lost:
            return False

    def _do(self, work: Callable[[_Statements], T]) -> T:
        """Do the work on a connection that commits by itself; once more when the connection broke."""
        alias = self._alias()
        for last_try in (False, True):
            started = time.monotonic()
            try:
                with bounded_connection(alias, _PATIENCE_SECONDS):
                    return work(_Statements.on(connections[alias]))
            except IntegrityError as exc:
                raise _Lost(_why(alias, exc)) from exc
            except (OperationalError, InterfaceError) as exc:
                if _tells(exc, _LOST_SIGNS):
                    raise _Lost(_why(alias, exc)) from exc
                if _tells(exc, _WAITED_SIGNS):
                    raise StoreBusy(_why(alias, exc)) from exc
                drop_connection(alias)
                waited = time.monotonic() - started >= _PATIENCE_SECONDS
                if last_try or waited or _is_missing_table(exc):
                    raise StoreUnavailable(_why(alias, exc, waited=waited)) from exc
            except (Error, ImproperlyConfigured, ConnectionDoesNotExist) as exc:
                raise StoreUnavailable(_why(alias, exc)) from exc
        raise AssertionError("unreachable")


class _Lost(StoreBusy):
    """Another was faster: it made the document first, or the database undid our statement for its sake."""


@dataclass(frozen=True, slots=True)
class _Statements:
    """Our statements in the words of one database, on one connection."""

    connection: BaseDatabaseWrapper
    names: Mapping[str, str]

    @classmethod
    def on(cls, connection: BaseDatabaseWrapper) -> _Statements:
        clock = _CLOCKS.get(connection.vendor)
        if clock is None:
            raise ImproperlyConfigured(f"databases of the kind {connection.vendor!r} are not supported")
        quote = connection.ops.quote_name
        columns = {name: quote(name) for name in ("key", "value", "version", "expires_at")}
        return cls(connection, {"clock": clock, "table": quote(State._meta.db_table), **columns})

    def rows(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement.format_map(self.names), arguments)
            return list(cursor.fetchall())

    def first(self, statement: str, *arguments: Any) -> tuple[Any, ...]:
        return self.rows(statement, *arguments)[0]

    def changes(self, statement: str, *arguments: Any) -> bool:
        with self.connection.cursor() as cursor:
            cursor.execute(statement.format_map(self.names), arguments)
            return bool(cursor.rowcount)


def _create(sql: _Statements, row: tuple[str, int, float, str]) -> bool:
    if sql.changes(_REUSE, *row, row[1]):
        return True
    sql.changes(_CREATE, *row)
    try:
        # The table grows only here, so this bounds it.
        for (key,) in sql.rows(_OVER):
            sql.changes(_CLEAR, key)
    except Error:
        pass  # The document is written, and the next new one clears again.
    return True


def _column(key: str) -> str:
    """The key as its column takes it: no two keys are equal to a database that ignores case or blanks."""
    if _PLAIN_KEY.fullmatch(key):
        return key
    digest = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{re.sub(r'[^a-z0-9._:@/-]', '_', key.lower())[: KEY_LENGTH - 65]}~{digest}"


def _tells(exc: Exception, signs: tuple[str, ...]) -> bool:
    text = str(exc).lower()
    return any(sign in text for sign in signs)


def _is_missing_table(exc: Exception) -> bool:
    cause = exc.__cause__
    codes = {getattr(cause, "sqlstate", None), *(cause.args[:1] if cause is not None else ())}
    return not codes.isdisjoint({"42P01", 1146}) or "no such table" in str(exc)


def _why(alias: str, exc: Exception, *, waited: bool = False) -> str:
    if _is_missing_table(exc):
        remedy = f" --database {alias}" if alias != "default" else ""
        return (
            f"the table of shared state is missing in the database {alias!r}: "
            f"run manage.py migrate hardening{remedy}"
        )
    return (
        f"the database {alias!r} keeps the shared state and cannot be used now: "
        f"{'no answer in time; ' if waited else ''}{type(exc).__name__}: {str(exc).strip()}"
    )
