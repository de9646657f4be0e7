"""How the stores of Beat reach their database: bounded, in transactions of their own, on a kept connection.

`hardening.core.statements` uses the connection that Django keeps for this thread where that is open, and else
opens one for the call. A Beat's threads have none open as a rule. What only a Beat asks, several times a
second, has a connection of its own that stays; a broken one is renewed.

A Beat that is stopped in the middle of a transaction would keep the fence locked, and its successor out. So
the database ends one that is idle for some seconds: PostgreSQL and MariaDB do. With MySQL its
`wait_timeout` does, and with SQLite nothing: the file is locked until the process goes on or ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import Error, transaction
from django.utils.connection import ConnectionDoesNotExist

from beat_leader.conf import beat_settings
from beat_leader.ticks import TicksUnavailable
from hardening.core.connection import KeptConnection
from hardening.core.statements import OnDatabase, Statements

__all__ = ["Lost", "Stored"]

T = TypeVar("T")

_SECONDS = 2
_TRIES = 3
_IDLE_SECONDS = 4
"""Less than a lease: the transaction is over when the successor comes."""

_kept: dict[str, KeptConnection] = {}
"""By alias: ticks and register share one."""


class Lost(TicksUnavailable):
    """Another was faster: it made the same row, or the database undid our statements for its sake."""


class Stored(OnDatabase):
    """Something of Beat's in the tables of its models. Every piece of work can be done twice."""

    unavailable = TicksUnavailable
    busy = TicksUnavailable
    lost = Lost
    columns = ()

    def __init__(self, database: str | None = None) -> None:
        """`database`: an alias; None: BEAT_LEADER["DATABASE"], else where Django's routers put it."""
        super().__init__(database or beat_settings().database)

    def close(self) -> None:
        """Close this thread's connections, unless they are in a transaction of the caller's."""
        self._of_beat().close()
        super().close()

    def _of_beat(self) -> KeptConnection:
        return _kept.setdefault(self._alias(), KeptConnection(_SECONDS))

    def _ask(self, work: Callable[[Statements], T]) -> T:
        for _ in range(_TRIES - 1):
            try:
                return self._do(work)
            except Lost:
                continue
        return self._do(work)

    def _ask_as_beat(self, work: Callable[[Statements], T], *, whole: bool = False) -> T:
        """On the connection that stays; `whole`: in a transaction, all or nothing."""

        def in_one(sql: Statements) -> T:
            _end_if_idle(sql)
            with transaction.atomic(using=sql.connection.alias, savepoint=False):
                return work(sql)

        with _Placed(self, self._of_beat()):
            return self._ask(in_one if whole else work)


def _end_if_idle(sql: Statements) -> None:
    """Of our own connection only: no caller has it."""
    connection: Any = sql.connection
    if connection.vendor == "postgresql":
        statement = f"SET idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'"
    elif connection.vendor == "mysql" and connection.mysql_is_mariadb:
        statement = f"SET SESSION idle_transaction_timeout = {_IDLE_SECONDS}"
    else:
        return
    if getattr(connection, "ends_if_idle", None) is not connection.connection:
        with connection.cursor() as cursor:
            cursor.execute(statement)
        connection.ends_if_idle = connection.connection


class _Placed:
    """`KeptConnection.in_place`, whose failure to open is one of the store's."""

    def __init__(self, store: Stored, kept: KeptConnection) -> None:
        self._store = store
        self._alias = store._alias()
        self._context: Any = kept.in_place(self._alias)

    def __enter__(self) -> None:
        try:
            self._context.__enter__()
        except (Error, ImproperlyConfigured, ConnectionDoesNotExist) as exc:
            raise TicksUnavailable(self._store._why(self._alias, exc)) from exc

    def __exit__(self, *exc_info: Any) -> None:
        self._context.__exit__(*exc_info)
