"""DatabaseRevoked: revokes in a database of the project's, where the broker is no Redis.

Each write commits by itself, whatever becomes of a transaction of the caller's. Dying between two
statements has written some of the revokes; whoever asked for them does not know more than that it failed,
and may ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any, TypeVar

from django.db import Error

from hardening.revoked.models import Revoked
from hardening.revoked.rules import Revoke
from hardening.revoked.store import Changes, Mark
from hardening.stores.statements import Lost, OnDatabase, Statements

__all__ = ["DatabaseRevoked"]

T = TypeVar("T")

_AT_ONCE = 400
"""Rows in one statement: SQLite allows 999 parameters."""

_FRESH_SECONDS = 60.0
"""Each worker that hears a broadcast writes it; one that finds it written so lately has nothing to do."""


class DatabaseRevoked(OnDatabase):
    """Revokes in the table of `hardening.revoked.models`."""

    model = Revoked
    keeps = "what is revoked"
    columns = ()

    def add(self, revokes: Sequence[Revoke], *, ttl_seconds: float, most: int) -> int:
        """A few statements for each 400."""

        def work(sql: Statements) -> int:
            now, alias = _now(sql), sql.connection.alias
            rows = _rows(revokes, at=now, until=now + ttl_seconds, forgotten=False)
            fresh = {
                "at__gt": now - _FRESH_SECONDS,
                "until__gt": now + ttl_seconds - _FRESH_SECONDS,
                "forgotten": False,
            }
            for part in _parts(rows):
                there = Revoked.objects.using(alias).filter(pk__in=[row.key for row in part], **fresh)
                known = set(there.values_list("pk", flat=True))
                _write(sql, [row for row in part if row.key not in known])
            return _bounded(alias, now, most)

        return self._twice(work)

    def forget(self, revokes: Sequence[Revoke], *, ttl_seconds: float) -> tuple[Revoke, ...]:
        """A few statements for each 400."""
        were: set[str] = set()

        def work(sql: Statements) -> None:
            now, alias = _now(sql), sql.connection.alias
            for part in _parts(_rows(revokes, at=now, until=now + ttl_seconds, forgotten=True)):
                there = Revoked.objects.using(alias).filter(
                    pk__in=[row.key for row in part], until__gt=now, forgotten=False
                )
                were.update(there.values_list("pk", flat=True))
                _write(sql, part)

        self._twice(work)
        return tuple(revoke for revoke in revokes if _key(revoke) in were)

    def changes(self, since: float | None = None) -> Changes:
        """Two statements."""

        def work(sql: Statements) -> Changes:
            now = _now(sql)
            told = Revoked.objects.using(sql.connection.alias).filter(until__gt=now).order_by("until")
            if since is not None:
                told = told.filter(at__gte=since)
            marks = [
                (Mark(revoke, at, until), forgotten)
                for text, at, until, forgotten in told.values_list("revoke", "at", "until", "forgotten")
                if (revoke := Revoke.read(text)) is not None
            ]
            return Changes(
                now,
                tuple(mark for mark, forgotten in marks if not forgotten),
                tuple(mark.revoke for mark, forgotten in marks if forgotten),
            )

        return self._do(work)

    def _twice(self, work: Callable[[Statements], T]) -> T:
        """Once more where the database undid it for another's sake."""
        try:
            return self._do(work)
        except Lost:
            return self._do(work)


def _now(sql: Statements) -> float:
    return float(sql.first("SELECT {clock}")[0])


def _rows(revokes: Sequence[Revoke], **values: Any) -> list[Revoked]:
    # In the order of their keys: two that write the same ones wait for each other and do not deadlock.
    keys = sorted({_key(revoke): revoke for revoke in revokes}.items(), key=lambda pair: pair[0])
    return [Revoked(key=key, revoke=revoke.text, **values) for key, revoke in keys]


def _write(sql: Statements, rows: Sequence[Revoked]) -> None:
    if rows:
        named = sql.connection.features.supports_update_conflicts_with_target
        Revoked.objects.using(sql.connection.alias).bulk_create(
            rows,
            update_conflicts=True,
            update_fields=("at", "until", "forgotten"),
            unique_fields=("key",) if named else None,
        )


def _bounded(alias: str, now: float, most: int) -> int:
    rows = Revoked.objects.using(alias)
    try:
        rows.filter(until__lte=now).delete()
        excess = rows.count() - most
        if excess <= 0:
            return 0
        first = list(rows.order_by("until", "pk").values_list("pk", "forgotten")[:excess])
        for part in _parts(first):
            rows.filter(pk__in=[key for key, _ in part]).delete()
        return sum(not forgotten for _, forgotten in first)
    except Error:
        return 0  # What was to be remembered is written, and the next one clears again.


def _parts(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(rows), _AT_ONCE):
        yield rows[start : start + _AT_ONCE]


def _key(revoke: Revoke) -> str:
    return sha256(revoke.text.encode()).hexdigest()
