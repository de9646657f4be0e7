"""Ticks in a database. Who writes changes the one row of the fence first, and so waits its turn.

The argument. Each writing call of a leader is one transaction that begins with an UPDATE of the fence, whose
condition is that no higher epoch was seen. The database lets one such transaction in at a time, and what the
next one reads is what the one before committed. So a due time is looked for and put in without a race, the
unique constraint is only the second lock of the door, and an old epoch changes nothing: its first statement
finds no row. What workers write is one statement whose condition names what it may change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import Count, Exists, Max, OuterRef, Q, QuerySet

from beat_leader.models.names import clean, key_of
from beat_leader.models.ticks import CursorRow, Fence, TickRow
from beat_leader.ticks import Cursor, Decision, OldEpoch, Outcome, State, Tick, follows, moved, task_id_for
from hardening.core.statements import Statements

from .link import Stored
from .rows import COLUMNS, cursor_of, cursor_row, tick_of, tick_row, uuid_of

__all__ = ["Ticks"]

T = TypeVar("T")

_BATCH = 500
_MOST_LATE = 100
_WALK = 20
"""Schedules whose rows one call of `prune` counts."""

_FEW = 3
"""As a rule the due times of a batch are the same moment, or a few: an UPDATE for each is the least."""

_CURSOR = ("schedule", "definition", "anchor_ms", "decided_ms")


class Ticks(Stored):
    """A tick store in the tables of `beat_leader.models`."""

    model = TickRow
    keeps = "the ticks of Beat"

    _walked = ""
    """How far the walk over the schedules is that looks for too many rows."""

    def open_term(self, epoch: int) -> None:
        """One statement."""
        self._write(epoch, lambda sql: None)

    def newest_epoch(self) -> int:
        """One statement that only reads."""

        def work(sql: Statements) -> int:
            return _of(Fence, sql).aggregate(newest=Max("epoch"))["newest"] or 0

        return self._ask(work)

    def cursors(self) -> dict[str, Cursor]:
        """One statement that only reads."""

        def work(sql: Statements) -> list[Any]:
            return list(_of(CursorRow, sql).values_list(*_CURSOR))

        return {cursor.schedule: cursor for cursor in (cursor_of(*row) for row in self._ask(work))}

    def put_cursors(self, epoch: int, cursors: Iterable[Cursor]) -> None:
        """Three statements for each 500 of them, in a transaction of their own."""
        given = list(cursors)

        for batch in _in_batches(given):
            self._write(epoch, partial(_put_moved, cursors=batch))
        if not given:
            self.open_term(epoch)

    def drop_cursors(self, epoch: int, schedules: Iterable[str]) -> None:
        """Two statements for each 500 of them, in a transaction of their own."""
        keys = [key_of(name) for name in schedules]

        def drop(sql: Statements, batch: Sequence[str]) -> None:
            _of(CursorRow, sql).filter(key__in=batch).delete()

        for batch in _in_batches(keys):
            self._write(epoch, partial(drop, batch=batch))
        if not keys:
            self.open_term(epoch)

    def decide(self, epoch: int, decisions: Sequence[Decision]) -> list[bool]:
        """Nine statements at most, in one transaction, for each 500 of them."""

        def work(sql: Statements) -> list[bool]:
            return [each for batch in _in_batches(decisions) for each in _decide(sql, epoch, batch)]

        return self._write(epoch, work)

    def sent(self, epoch: int, ticks: Sequence[tuple[str, int]], now_ms: int) -> None:
        """Two statements."""
        ids = [UUID(task_id_for(*tick)) for tick in ticks]

        def work(sql: Statements) -> None:
            for batch in _in_batches(ids):
                _due(sql, batch).update(state=State.SENT.value, sent_ms=now_ms, epoch=epoch)

        self._write(epoch, work)

    def missed(self, epoch: int, schedule: str, due_ms: int, why: str) -> None:
        """Two statements."""
        ids = [UUID(task_id_for(schedule, due_ms))]

        def work(sql: Statements) -> None:
            _due(sql, ids).update(state=State.MISSED.value, why=clean(why), epoch=epoch)

        self._write(epoch, work)

    def unfinished(self) -> list[Tick]:
        """One statement that only reads."""
        return self._ticks(
            lambda rows: rows.filter(state=State.DUE.value).order_by("due_ms", "key"),
        )

    def note(self, task_id: str, outcome: Outcome, at_ms: int, detail: str = "") -> bool:
        """One statement, and another one if that changed nothing."""
        row = uuid_of(task_id)
        before = [each.value for each in Outcome if follows(each, outcome)]
        when = "started_ms" if outcome is Outcome.STARTED else "ended_ms"
        changes = {"outcome": outcome.value, "detail": clean(detail), when: at_ms}

        def work(sql: Statements) -> bool:
            rows = _of(TickRow, sql).filter(pk=row)
            return bool(rows.filter(outcome__in=before).update(**changes)) or rows.exists()

        return row is not None and self._ask(work)

    def last(self, schedules: Sequence[str] | None = None) -> dict[str, Tick]:
        """One statement that only reads, for each 500 that are asked for."""
        if schedules is None:
            found = self._ticks(lambda rows: rows.filter(latest_of__isnull=False))
        else:
            keys = [key_of(name) for name in schedules]
            found = [
                tick
                for batch in _in_batches(keys)
                for tick in self._ticks(lambda rows, batch=batch: rows.filter(latest_of__in=batch))
            ]
        return {tick.schedule: tick for tick in found}

    def last_sent(self, schedule: str) -> Tick | None:
        """One statement that only reads."""
        states = [State.SENT.value, State.DUE.value]
        rows = Q(key=key_of(schedule), state__in=states)
        found = self._ticks(lambda every: every.filter(rows).order_by("-due_ms")[:1])
        return found[0] if found else None

    def history(
        self, schedule: str | None = None, *, limit: int = 100, before: tuple[int, str] | None = None
    ) -> list[Tick]:
        """One statement that only reads, by an index."""
        only = Q() if schedule is None else Q(key=key_of(schedule))
        if before is not None:
            due_ms, name = before
            only &= Q(due_ms__lte=due_ms) & (Q(due_ms__lt=due_ms) | Q(key__lt=key_of(name)))
        return self._ticks(lambda rows: rows.filter(only).order_by("-due_ms", "-key")[:limit])

    def late(self, *, before_ms: int) -> list[Tick]:
        """One statement that only reads."""
        due = Q(state=State.DUE.value, due_ms__lt=before_ms)
        return self._ticks(lambda rows: rows.filter(due).order_by("due_ms", "key")[:_MOST_LATE])

    def prune(self, *, before_ms: int, most: int, limit: int = 1000) -> int:
        """A statement for the old ones, one for the numbers of twenty schedules' rows, and three for each
        that has too many. Each ends soon, and is a transaction of its own."""
        gone = 0
        for at_most in _parts(limit):
            some = self._ask(partial(_delete_old, before_ms=before_ms, limit=at_most))
            gone += some
            if some < at_most:
                break
        for key in self._ask(lambda sql: self._crowded(sql, most)):
            if gone >= limit:
                break
            gone += self._ask(partial(_delete_over, key=key, most=most, limit=min(limit - gone, _BATCH)))
        return gone

    def counts(self, *, since_ms: int) -> Mapping[State, int]:
        """One statement that only reads."""

        def work(sql: Statements) -> list[Any]:
            rows = _of(TickRow, sql).filter(due_ms__gte=since_ms).values_list("state")
            return list(rows.annotate(rows=Count("*")).order_by())

        found = {State(state): int(rows) for state, rows in self._ask(work)}
        return {state: found.get(state, 0) for state in State}

    def _write(self, epoch: int, work: Callable[[Statements], T]) -> T:
        def fenced(sql: Statements) -> T:
            _enter(sql, epoch)
            return work(sql)

        return self._ask_as_beat(fenced, whole=True)

    def _ticks(self, chosen: Callable[..., QuerySet[TickRow]]) -> list[Tick]:
        def work(sql: Statements) -> list[Any]:
            return list(chosen(_of(TickRow, sql)).values_list(*COLUMNS))

        return [tick_of(row) for row in self._ask(work)]

    def _crowded(self, sql: Statements, most: int) -> list[str]:
        rows = _of(TickRow, sql)
        keys = list(
            rows.filter(latest_of__gt=self._walked)
            .order_by("latest_of")
            .values_list("latest_of", flat=True)[:_WALK]
        )
        self._walked = str(keys[-1]) if len(keys) == _WALK else ""
        numbers = rows.filter(key__in=keys).values_list("key").annotate(rows=Count("*")).order_by()
        return [key for key, number in numbers if number > most]


def _enter(sql: Statements, epoch: int) -> None:
    rows = _of(Fence, sql)
    if rows.filter(pk=1, epoch__lte=epoch).update(epoch=epoch):
        return
    rows.bulk_create([Fence(id=1, epoch=epoch)], ignore_conflicts=True)
    if not rows.filter(pk=1, epoch__lte=epoch).update(epoch=epoch):
        raise OldEpoch(epoch, rows.get(pk=1).epoch)


def _decide(sql: Statements, epoch: int, decisions: Sequence[Decision]) -> list[bool]:
    rows = [tick_row(decision, epoch) for decision in decisions]
    cursors = _cursors(sql, {decision.schedule for decision in decisions})
    before = _of(TickRow, sql).filter(pk__in=[row.pk for row in rows])
    there = {pk: whose for pk, *whose in before.values_list("pk", "epoch", "decided_ms")}
    made: dict[UUID, TickRow] = {}
    moved_to: dict[str, Cursor] = {}
    answers = []
    for decision, row in zip(decisions, rows, strict=True):
        whose = there.get(row.pk)
        cursor = cursors.get(decision.schedule)
        if whose is not None:
            answers.append(whose == [epoch, row.decided_ms])
        elif cursor is not None and row.due_ms <= cursor.decided_ms:
            answers.append(False)
        else:
            made[row.pk] = row
            there[row.pk] = [epoch, row.decided_ms]
            answers.append(True)
            if cursor is not None:
                cursors[decision.schedule] = moved_to[row.key] = replace(cursor, decided_ms=row.due_ms)
    if made:
        _mark_latest(sql, list(made.values()))
        _of(TickRow, sql).bulk_create(made.values())
        _move(sql, moved_to)
    return answers


def _move(sql: Statements, cursors: Mapping[str, Cursor]) -> None:
    moments: dict[int, list[str]] = {}
    for key, cursor in cursors.items():
        moments.setdefault(cursor.decided_ms, []).append(key)
    if len(moments) > _FEW:
        _put(sql, cursors.values())
        return
    for decided_ms, keys in moments.items():
        _of(CursorRow, sql).filter(key__in=keys).update(decided_ms=decided_ms)


def _mark_latest(sql: Statements, made: Sequence[TickRow]) -> None:
    """Of the new rows; the rows that were the latest are so no more."""
    newest: dict[str, TickRow] = {}
    for row in made:
        if row.key not in newest or newest[row.key].due_ms < row.due_ms:
            newest[row.key] = row
    rows = _of(TickRow, sql)
    before = dict(rows.filter(latest_of__in=list(newest)).values_list("latest_of", "due_ms"))
    later = [row for row in newest.values() if row.due_ms > before.get(row.key, row.due_ms - 1)]
    if before:
        rows.filter(latest_of__in=[row.key for row in later]).update(latest_of=None)
    for row in later:
        row.latest_of = row.key


def _cursors(sql: Statements, names: Iterable[str]) -> dict[str, Cursor]:
    rows = _of(CursorRow, sql).filter(key__in=[key_of(name) for name in names]).values_list(*_CURSOR)
    return {cursor.schedule: cursor for cursor in (cursor_of(*row) for row in rows)}


def _put(sql: Statements, cursors: Iterable[Cursor]) -> None:
    # MariaDB names no constraint there; others must.
    named = sql.connection.features.supports_update_conflicts_with_target
    _of(CursorRow, sql).bulk_create(
        [cursor_row(cursor) for cursor in cursors],
        update_conflicts=True,
        update_fields=["definition", "anchor_ms", "decided_ms"],
        unique_fields=["key"] if named else None,
    )


def _due(sql: Statements, ids: Sequence[UUID]) -> QuerySet[TickRow]:
    return TickRow.objects.using(sql.connection.alias).filter(pk__in=ids, state=State.DUE.value)


def _prunable(sql: Statements) -> QuerySet[TickRow]:
    cursor = CursorRow.objects.using(sql.connection.alias).filter(key=OuterRef("key"))
    free = Q(latest_of__isnull=True) | ~Exists(cursor)
    rows = TickRow.objects.using(sql.connection.alias)
    return rows.exclude(state=State.DUE.value).filter(free)


def _delete_old(sql: Statements, before_ms: int, limit: int) -> int:
    old = _prunable(sql).filter(due_ms__lt=before_ms).order_by("due_ms", "key")
    return _delete(sql, old[:limit])


def _delete_over(sql: Statements, key: str, most: int, limit: int) -> int:
    rows = _of(TickRow, sql).filter(key=key).order_by("-due_ms")
    newest = rows.values_list("due_ms", flat=True)[most - 1 : most]
    # In no order: PostgreSQL would read the whole table in it.
    return sum(_delete(sql, _prunable(sql).filter(key=key, due_ms__lt=at)[:limit]) for at in list(newest))


def _delete(sql: Statements, rows: QuerySet[TickRow]) -> int:
    ids = list(rows.values_list("pk", flat=True))
    # Asked again: a row may have become the latest meanwhile.
    return _prunable(sql).filter(pk__in=ids).delete()[0] if ids else 0


def _put_moved(sql: Statements, cursors: Sequence[Cursor]) -> None:
    names = {cursor.schedule for cursor in cursors}
    kept = _cursors(sql, names)
    for cursor in cursors:
        kept[cursor.schedule] = moved(kept.get(cursor.schedule), cursor)
    _put(sql, (kept[name] for name in names))


def _parts(number: int) -> Iterator[int]:
    return (min(_BATCH, number - start) for start in range(0, number, _BATCH))


def _of(model: Any, sql: Statements) -> Any:
    return model.objects.using(sql.connection.alias)


def _in_batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + _BATCH] for start in range(0, len(items), _BATCH))
