"""DatabaseDelayedStore: delayed messages in a database of the project's, where the broker is no Redis.

A message is one row. Its key lets one of several copies in; the row that it had stays for a while when it
was released or cancelled, without the message, so that a late copy finds it.

Released are the rows that are due, claimed by one statement that takes only unclaimed ones, so that of two
workers one sends a row. While a claim is open nobody claims more, so that the order is kept; a claim ends
by itself when its worker died. Each statement commits by itself. One that lost its answer is sent once
more: a row with our claim, or our cancellation, is our own work.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import Error
from django.utils.connection import ConnectionDoesNotExist

from hardening.core.connection import KeptConnection
from hardening.delayed.entry import Cancelled, Delayed, Fate
from hardening.delayed.store import (
    CANCELLED_SECONDS,
    CLAIM_SECONDS,
    MOST_RECORDS,
    POSTPONED_SECONDS,
    RELEASED_SECONDS,
    Publish,
    Turn,
)
from hardening.models import DelayedTask
from hardening.store import StoreUnavailable
from hardening.stores.statements import Lost, OnDatabase, Statements

__all__ = ["DatabaseDelayedStore"]

T = TypeVar("T")

_PATIENCE_SECONDS = 2
_MOST_FOUND = 100
_MOST_CLEARED = 500
_ANOTHER_IS_AT_IT_SECONDS = 0.5
_PARKED, _RELEASED, _CANCELLED = DelayedTask.PARKED, DelayedTask.RELEASED, DelayedTask.CANCELLED

_LOOK = """
SELECT {clock}, t.{state}, t.{ended_at} FROM (SELECT 1 AS one) AS o LEFT JOIN {table} AS t ON t.{key} = %s
"""
_FORGET = "DELETE FROM {table} WHERE {key} = %s AND {state} <> %s"
_PARK = """
INSERT INTO {table} ({key}, {state}, {task_id}, {task}, {queue}, {list_key}, {attempt}, {due_at}, {next_at},
{message}, {parked_at}, {claimed_until}, {claim}, {ended_at}, {ended_by})
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, {clock}, 0, 0, 0, '')
"""
_OPEN = """
SELECT {number} FROM {table} WHERE {state} = %s AND {next_at} <= {clock} AND {claimed_until} > {clock}
ORDER BY {next_at} LIMIT 1
"""
_FIRST = """
SELECT {next_at} - {clock} FROM {table} WHERE {state} = %s ORDER BY {next_at}, {number} LIMIT 1
"""
_DUE = """
SELECT {number} FROM {table} WHERE {state} = %s AND {next_at} <= {clock}
ORDER BY {next_at}, {number} LIMIT %s
"""
_CLAIM = """
UPDATE {table} SET {claim} = %s, {claimed_until} = {clock} + %s
WHERE {number} IN ({numbers}) AND {state} = %s AND ({claimed_until} <= {clock} OR {claim} = %s)
"""
_LIST = "{key}, {task_id}, {task}, {queue}, {due_at}, {attempt}, {parked_at}, {list_key}"
_MINE = """
SELECT {listed}, {message}
FROM {table} WHERE {number} IN ({numbers}) AND {state} = %s AND {claim} = %s
ORDER BY {next_at}, {number}
""".replace("{listed}", _LIST)
_DONE = """
UPDATE {table} SET {state} = %s, {ended_at} = {clock}, {message} = '', {claimed_until} = 0
WHERE {key} IN ({numbers}) AND {claim} = %s
"""
_LATER = """
UPDATE {table} SET {next_at} = {clock} + %s, {claimed_until} = 0
WHERE {state} = %s AND {claim} = %s AND {number} IN ({numbers})
"""
_FIND = """
SELECT {listed}, {message}
FROM {table} WHERE {key} = %s AND {state} = %s AND {claimed_until} <= {clock}
""".replace("{listed}", _LIST)
_CANCEL = """
UPDATE {table} SET {state} = %s, {ended_at} = {clock}, {ended_by} = %s, {message} = '', {claim} = %s
WHERE {key} = %s AND {state} = %s AND {claimed_until} <= {clock}
"""
_CANCELLED_BY = """
SELECT {ended_at} FROM {table} WHERE {key} = %s AND {state} = %s AND {claim} = %s
"""
_COUNT = "SELECT COUNT(*) FROM {table} WHERE {state} = %s"
_PAGE = """
SELECT {listed}
FROM {table} WHERE {state} = %s ORDER BY {next_at}, {number} LIMIT %s OFFSET %s
""".replace("{listed}", _LIST)
_SEARCH = """
SELECT {listed}
FROM {table} WHERE {state} = %s AND {column} = %s ORDER BY {next_at}, {number} LIMIT %s
""".replace("{listed}", _LIST)
_RECORDS = """
SELECT {key}, {task_id}, {task}, {queue}, {due_at}, {ended_at}, {ended_by} FROM {table}
WHERE {state} = %s AND {ended_at} > {clock} - %s ORDER BY {ended_at} DESC, {number} DESC LIMIT %s
"""
_OVER = """
SELECT {number} FROM {table} WHERE {state} = %s AND {ended_at} <= {clock} - %s ORDER BY {ended_at} LIMIT %s
"""
_BEYOND = "SELECT {number} FROM {table} WHERE {state} = %s ORDER BY {ended_at} DESC LIMIT %s OFFSET %s"
_CLEAR = "DELETE FROM {table} WHERE {number} IN ({numbers}) AND {state} <> %s"


class DatabaseDelayedStore(OnDatabase):
    """Delayed messages in the table of `hardening.models.DelayedTask`."""

    model = DelayedTask
    keeps = "the delayed tasks"
    columns = tuple(field.name for field in DelayedTask._meta.fields)

    def __init__(self, database: str | None = None) -> None:
        super().__init__(database)
        self._kept = KeptConnection(_PATIENCE_SECONDS)
        self._keeps = False

    def begin(self) -> None:
        """Keep this thread's connection open between calls."""
        self._keeps = True

    def pause(self) -> None:
        """Close it."""
        self._kept.close()

    def close(self) -> None:
        """Close this thread's connections, unless one is in a transaction of the caller's."""
        self._kept.close()
        super().close()

    def _do(self, work: Callable[[Statements], T]) -> T:
        if not self._keeps:
            return super()._do(work)
        alias = self._alias()
        try:
            with self._kept.in_place(alias):
                return super()._do(work)
        except (Error, ImproperlyConfigured, ConnectionDoesNotExist) as exc:
            raise StoreUnavailable(self._why(alias, exc)) from exc

    def park(self, entry: Delayed) -> Fate:
        """Keep a message: one statement where it is new."""

        def work(sql: Statements) -> Fate:
            seen = _look(sql, entry.id)
            if seen.fate is not Fate.UNKNOWN:
                return seen.fate
            if entry.due <= seen.now:
                return Fate.DUE
            if seen.is_old:
                sql.changes(_FORGET, entry.id, _PARKED)
            sql.changes(_PARK, *_row(entry))
            return Fate.PARKED

        try:
            return self._do(work)
        except Lost:
            return self.fate(entry.id)

    def fate(self, entry_id: str) -> Fate:
        """What became of a message, in one statement."""
        return self._do(lambda sql: _look(sql, entry_id)).fate

    def release(self, publish: Publish, *, limit: int) -> Turn:
        """Claim, publish, mark. Where nothing is due it is one statement."""
        first = self._do(lambda sql: sql.rows(_FIRST, _PARKED))
        if not first or first[0][0] > 0:
            return Turn(next_in=float(first[0][0]) if first else None)
        claim = secrets.randbits(62) + 1
        try:
            claimed = self._do(lambda sql: _claimed(sql, claim, limit))
        except Lost:
            return Turn(next_in=_ANOTHER_IS_AT_IT_SECONDS)
        if claimed is None or not claimed.entries:
            return Turn(next_in=_ANOTHER_IS_AT_IT_SECONDS)
        sent: Sequence[str] = ()
        try:
            sent = publish(claimed.entries)
        finally:
            self._settle(claim, claimed, sent)
        left = len(claimed.entries) - len(sent)
        return Turn(released=len(sent), postponed=left, next_in=0.0)

    def _settle(self, claim: int, claimed: _Claimed, sent: Sequence[str]) -> None:
        def work(sql: Statements) -> None:
            if sent:
                sql.changes(_in(_DONE, len(sent)), _RELEASED, *sent, claim)
            if len(sent) < len(claimed.entries):
                later = (POSTPONED_SECONDS, _PARKED, claim, *claimed.numbers)
                sql.changes(_in(_LATER, len(claimed.numbers)), *later)

        self._insist(work)
        with suppress(StoreUnavailable):  # The next turn clears again.
            self._do(_clear)

    def _insist(self, work: Callable[[Statements], None]) -> None:
        """Where this is not written, the claim ends, and messages that were sent are sent again."""
        for _ in range(2):
            with suppress(StoreUnavailable):
                return self._do(work)
        return self._do(work)

    def cancel(self, entry_id: str, *, by: str) -> tuple[Delayed, Cancelled] | None:
        """Take a message off, unless it is claimed, which is as good as released."""
        token = secrets.randbits(62) + 1
        found: list[Delayed] = []

        def work(sql: Statements) -> float | None:
            if not found:
                found.extend(_delayed(row) for row in sql.rows(_FIND, entry_id, _PARKED))
            if found:
                sql.changes(_CANCEL, _CANCELLED, by[:200], token, entry_id, _PARKED)
                for (at,) in sql.rows(_CANCELLED_BY, entry_id, _CANCELLED, token):
                    return float(at)
            return None

        at = self._do(work)
        if at is None:
            return None
        entry = found[0]
        record = Cancelled(
            id=entry.id,
            task_id=entry.task_id,
            task=entry.task,
            queue=entry.queue,
            due=entry.due,
            at=at,
            by=by,
        )
        return entry, record

    def count(self) -> int:
        """How many are parked."""
        return int(self._do(lambda sql: sql.first(_COUNT, _PARKED))[0])

    def page(self, *, offset: int, limit: int) -> list[Delayed]:
        """Some of them, by their place in the order."""
        return [_delayed(row) for row in self._do(lambda sql: sql.rows(_PAGE, _PARKED, limit, offset))]

    def find(self, key: str) -> list[Delayed]:
        """Those of a task id, or the one of an own id."""
        for column in ("task_id", "key"):
            statement = _SEARCH.replace("{column}", f"{{{column}}}")
            rows = self._do(_asking(statement, _PARKED, key, _MOST_FOUND))
            # A database may take "a" for "A".
            if exact := [each for each in map(_delayed, rows) if key in (each.task_id, each.id)]:
                return exact
        return []

    def cancellations(self, *, limit: int) -> list[Cancelled]:
        """The latest first."""
        rows = self._do(lambda sql: sql.rows(_RECORDS, _CANCELLED, CANCELLED_SECONDS, limit))
        return [
            Cancelled(id=key, task_id=task_id, task=task, queue=queue, due=due, at=at, by=by)
            for key, task_id, task, queue, due, at, by in rows
        ]


@dataclass(frozen=True, slots=True)
class _Claimed:
    numbers: list[int]
    entries: list[Delayed]


@dataclass(frozen=True, slots=True)
class _Seen:
    fate: Fate
    now: float
    is_old: bool = False
    """There is a row whose time to be remembered is over."""


def _look(sql: Statements, entry_id: str) -> _Seen:
    now, state, ended_at = sql.first(_LOOK, entry_id)
    if state is None:
        return _Seen(Fate.UNKNOWN, float(now))
    lasting = {_RELEASED: RELEASED_SECONDS, _CANCELLED: CANCELLED_SECONDS}
    if state in lasting and ended_at <= now - lasting[state]:
        return _Seen(Fate.UNKNOWN, float(now), is_old=True)
    return _Seen(Fate(state), float(now))


def _claimed(sql: Statements, claim: int, limit: int) -> _Claimed | None:
    if sql.rows(_OPEN, _PARKED):
        return None  # Another worker is at it; two at once would mix their messages.
    numbers = [number for (number,) in sql.rows(_DUE, _PARKED, limit)]
    if not numbers:
        return None
    sql.changes(_in(_CLAIM, len(numbers)), claim, CLAIM_SECONDS, *numbers, _PARKED, claim)
    rows = sql.rows(_in(_MINE, len(numbers)), *numbers, _PARKED, claim)
    return _Claimed(numbers, [_delayed(row) for row in rows])


def _clear(sql: Statements) -> None:
    for state, seconds in ((_RELEASED, RELEASED_SECONDS), (_CANCELLED, CANCELLED_SECONDS)):
        old = sql.rows(_OVER, state, seconds, _MOST_CLEARED)
        numbers = [number for (number,) in old or sql.rows(_BEYOND, state, _MOST_CLEARED, MOST_RECORDS)]
        if numbers:
            sql.changes(_in(_CLEAR, len(numbers)), *numbers, _PARKED)


def _asking(statement: str, *arguments: Any) -> Callable[[Statements], list[tuple[Any, ...]]]:
    return lambda sql: sql.rows(statement, *arguments)


def _in(statement: str, count: int) -> str:
    return statement.replace("{numbers}", ", ".join(["%s"] * count))


def _row(entry: Delayed) -> tuple[Any, ...]:
    return (
        entry.id,
        _PARKED,
        entry.task_id,
        entry.task,
        entry.queue,
        entry.list_key,
        entry.attempt,
        entry.due,
        entry.due,
        entry.message,
    )


def _delayed(row: tuple[Any, ...]) -> Delayed:
    key, task_id, task, queue, due, attempt, parked_at, list_key, *message = row
    return Delayed(
        id=key,
        task_id=task_id,
        task=task,
        queue=queue,
        due=float(due),
        attempt=int(attempt),
        parked_at=float(parked_at),
        list_key=list_key,
        message=message[0] if message else "",
    )
