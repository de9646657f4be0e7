"""Statements in a database of the project's that commit by themselves, are bounded, and survive a break.

The caller's transaction is not touched, and its rollback takes nothing along (see
`hardening.core.connection`). Reads do not see the caller's transaction either, whose snapshot would hide
what others have written since.

A connection that broke may have committed its statement. So work must be such that it can be done twice,
and is done once more; but not on a database that let us wait, since a task may wait for us.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import Error, IntegrityError, InterfaceError, OperationalError, connections, models, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionDoesNotExist

from .connection import bounded_connection, drop_connection
from .errors import HardeningError

__all__ = ["OnDatabase", "Statements"]

T = TypeVar("T")

_CLOCKS = {
    "postgresql": "EXTRACT(EPOCH FROM statement_timestamp())::double precision",
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1e6",
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
}
"""Seconds since 1970, whatever the time zone of the session: the kinds of database that we know."""

_LOST_SIGNS = ("deadlock", "could not serialize", "record has changed")
_WAITED_SIGNS = ("locked", "lock wait timeout", "lock timeout")
_PATIENCE_SECONDS = 2


class OnDatabase:
    """Something kept in the table of a model. A call ends within about 5 s, also when the database is
    stopped: after 2 s as a rule, unless its entry in DATABASES has time-outs in its OPTIONS.

    Safe in prefork children, threads and greenlets: it uses the connection that Django keeps for each where
    that is open, else one for the call (see `hardening.core.connection.bounded_connection`).
    In an SQLite database in memory the table shares the fate of the caller's transaction.
    """

    model: type[models.Model]
    keeps = "what is shared"
    columns: tuple[str, ...]
    unavailable: type[HardeningError] = HardeningError
    """What is raised when it does not answer,"""

    busy: type[HardeningError] = HardeningError
    """when it lets us wait for another,"""

    lost: type[HardeningError] = HardeningError
    """and when another was faster: it made the same row, or the database undid our statement for its sake."""

    def __init__(self, database: str | None = None) -> None:
        """`database` is an alias; None: where Django's routers put the model."""
        self._database = database

    def close(self) -> None:
        """Close this thread's connection, unless it is in a transaction of the caller's."""
        drop_connection(self._alias())

    def _alias(self) -> str:
        return self._database or router.db_for_write(self.model)

    def _do(self, work: Callable[[Statements], T]) -> T:
        """Do the work on a connection that commits by itself; once more when the connection broke."""
        alias = self._alias()
        for last_try in (False, True):
            started = time.monotonic()
            try:
                with bounded_connection(alias, _PATIENCE_SECONDS):
                    return work(Statements.on(connections[alias], self.model, self.columns))
            except IntegrityError as exc:
                raise self.lost(self._why(alias, exc)) from exc
            except (OperationalError, InterfaceError) as exc:
                if _tells(exc, _LOST_SIGNS):
                    raise self.lost(self._why(alias, exc)) from exc
                if _tells(exc, _WAITED_SIGNS):
                    raise self.busy(self._why(alias, exc)) from exc
                drop_connection(alias)
                waited = time.monotonic() - started >= _PATIENCE_SECONDS
                if last_try or waited or _is_missing_table(exc):
                    raise self.unavailable(self._why(alias, exc, waited=waited)) from exc
            except (Error, ImproperlyConfigured, ConnectionDoesNotExist) as exc:
                raise self.unavailable(self._why(alias, exc)) from exc
        raise AssertionError("unreachable")

    def _why(self, alias: str, exc: Exception, *, waited: bool = False) -> str:
        if _is_missing_table(exc):
            remedy = f" --database {alias}" if alias != "default" else ""
            return (
                f"the table of {self.keeps} is missing in the database {alias!r}: "
                f"run manage.py migrate {self.model._meta.app_label}{remedy}"
            )
        return (
            f"the database {alias!r} keeps {self.keeps} and cannot be used now: "
            f"{'no answer in time; ' if waited else ''}{type(exc).__name__}: {str(exc).strip()}"
        )


@dataclass(frozen=True, slots=True)
class Statements:
    """Our statements in the words of one database, on one connection."""

    connection: BaseDatabaseWrapper
    names: Mapping[str, str]

    @classmethod
    def on(
        cls, connection: BaseDatabaseWrapper, model: type[models.Model], columns: tuple[str, ...]
    ) -> Statements:
        clock = _CLOCKS.get(connection.vendor)
        if clock is None:
            raise ImproperlyConfigured(f"databases of the kind {connection.vendor!r} are not supported")
        quote = connection.ops.quote_name
        named = {name: quote(name) for name in columns}
        return cls(connection, {"clock": clock, "table": quote(model._meta.db_table), **named})

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


def _tells(exc: Exception, signs: tuple[str, ...]) -> bool:
    text = str(exc).lower()
    return any(sign in text for sign in signs)


def _is_missing_table(exc: Exception) -> bool:
    cause = exc.__cause__
    codes = {getattr(cause, "sqlstate", None), *(cause.args[:1] if cause is not None else ())}
    return not codes.isdisjoint({"42P01", 1146}) or "no such table" in str(exc)
