"""What is due next: all schedules in memory, with how far each is. Pure: it neither asks nor tells a store.

A new leader makes it afresh from what source and store say. A schedule that is new, was disabled, or is due
otherwise than before begins when it is seen: nothing is caught up on, except that a single moment which an
operator names is due even if it was over when it was seen. One that ran under another scheduler, and that no
leader has seen yet, begins after that run.

A store may forget, or go back to an older state: what this process decided itself it does not decide again,
and it goes on from there where the store knows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Protocol

from .due import BadSchedule
from .due.kinds import Kind, kind_of
from .entry import Entry
from .ticks import Cursor

__all__ = ["Agenda", "Changes", "Line", "Times"]


class Times(Protocol):
    """When schedules are due."""

    def definition(self, entry: Entry) -> str:
        """A digest of when it is due: another one, another series of due times."""
        ...

    def next_due(self, entry: Entry, *, anchor_ms: int, after_ms: int) -> int | None:
        """The first due time after that; None: there is none any more."""
        ...


@dataclass(slots=True, kw_only=True)
class Line:
    """One schedule on the agenda."""

    entry: Entry
    cursor: Cursor
    next_ms: int | None
    """Its next due time; None: never again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What the tick store is to be told, and which schedules it is about."""

    put: tuple[Cursor, ...] = ()
    """New, or due otherwise now."""

    drop: tuple[str, ...] = ()
    """Gone or disabled."""

    broken: Mapping[str, str] = field(default_factory=dict)
    """Schedules of which nobody can tell when they are due, and why. They wait for the next reading."""


class Agenda:
    """Used by the thread that ticks only. Times are milliseconds since 1970."""

    def __init__(self, times: Times) -> None:
        self._times = times
        self._lines: dict[str, Line] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, schedule: str) -> bool:
        return schedule in self._lines

    def line(self, schedule: str) -> Line | None:
        """None: it is not on the agenda."""
        return self._lines.get(schedule)

    def begin(
        self,
        entries: Mapping[str, Entry],
        cursors: Mapping[str, Cursor],
        now_ms: int,
        *,
        still_ours: bool = False,
    ) -> Changes:
        """Know what source and store have now.

        `still_ours`: nobody else led since this agenda was used; what the store lacks, it forgot.
        """
        own = {name: line.cursor for name, line in self._lines.items()}
        if not still_ours:
            own = {name: cursor for name, cursor in own.items() if name in cursors}
        self._lines = {}
        known = {**own, **{name: _later(each, own.get(name)) for name, each in cursors.items()}}
        return self._take(entries, known, now_ms, cursors)

    def renew(self, entries: Mapping[str, Entry], now_ms: int) -> Changes:
        """The schedules were read again: how far each is stays, unless it is due otherwise."""
        known = {name: line.cursor for name, line in self._lines.items()}
        return self._take(entries, known, now_ms, known)

    def unknown_to(self, cursors: Mapping[str, Cursor]) -> list[Cursor]:
        """Those that a store which has these cursors forgot."""
        return [line.cursor for name, line in self._lines.items() if name not in cursors]

    def overdue(self, now_ms: int) -> Iterator[Line]:
        """Those whose next due time has come, the oldest first. Each is to be `decided` before the next one
        is asked for, or comes again with the next call."""
        postponed: list[tuple[int, str]] = []
        try:
            while self._heap and self._heap[0][0] <= now_ms:
                due_ms, name = heappop(self._heap)
                line = self._lines.get(name)
                if line is None or line.next_ms != due_ms:
                    continue  # From before it was decided, renewed or dropped.
                postponed.append((due_ms, name))
                yield line
        finally:
            for due_ms, name in postponed:
                line = self._lines.get(name)
                if line is not None and line.next_ms == due_ms:
                    heappush(self._heap, (due_ms, name))

    def decided(self, schedule: str, due_ms: int) -> None:
        """Everything up to that was decided."""
        line = self._lines[schedule]
        if due_ms > line.cursor.decided_ms:
            line.cursor = replace(line.cursor, decided_ms=due_ms)
        line.next_ms = self._next(line.entry, line.cursor)
        if line.next_ms is not None:
            heappush(self._heap, (line.next_ms, schedule))

    def postpone(self, schedule: str, until_ms: int) -> None:
        """It was not due after all: look again then."""
        self._lines[schedule].next_ms = until_ms
        heappush(self._heap, (until_ms, schedule))

    def stop(self, schedule: str) -> None:
        """Nobody can tell when it is due: it waits for the next reading."""
        self._lines[schedule].next_ms = None

    def next_ms(self) -> int | None:
        """The next due time of all; None: there is none."""
        while self._heap:
            due_ms, name = self._heap[0]
            line = self._lines.get(name)
            if line is not None and line.next_ms == due_ms:
                return due_ms
            heappop(self._heap)
        return None

    def after(self, schedule: str, due_ms: int) -> int | None:
        """Its due time after that one."""
        line = self._lines[schedule]
        return self._times.next_due(line.entry, anchor_ms=line.cursor.anchor_ms, after_ms=due_ms)

    def _take(
        self,
        entries: Mapping[str, Entry],
        cursors: Mapping[str, Cursor],
        now_ms: int,
        stored: Mapping[str, Cursor],
    ) -> Changes:
        put: list[Cursor] = []
        broken: dict[str, str] = {}
        lines: dict[str, Line] = {}
        for name, entry in entries.items():
            known = cursors.get(name)
            present = self._lines.get(name)
            if present is not None and present.entry is entry and present.next_ms is not None:
                lines[name] = present  # Its source knows that nothing changed.
                continue
            try:
                cursor = self._cursor(entry, known, now_ms)
                lines[name] = self._line(entry, cursor)
            except BadSchedule as exc:
                broken[name] = exc.why
                if known is not None:
                    lines[name] = Line(entry=entry, cursor=known, next_ms=None)
                continue
            if cursor is not stored.get(name):
                put.append(cursor)
        drop = tuple(name for name in cursors if name not in entries)
        self._lines = lines
        self._fill(lines.values())
        return Changes(put=tuple(put), drop=drop, broken=broken)

    def _fill(self, lines: Iterable[Line]) -> None:
        self._heap = [(line.next_ms, line.entry.name) for line in lines if line.next_ms is not None]
        heapify(self._heap)

    def _cursor(self, entry: Entry, known: Cursor | None, now_ms: int) -> Cursor:
        definition = self._times.definition(entry)
        if known is not None and known.definition == definition:
            return known
        begins = now_ms
        if entry.anchor is not None and (known is None or _is_single(entry)):
            begins = min(now_ms, int(entry.anchor * 1000))
        return Cursor(schedule=entry.name, definition=definition, anchor_ms=begins, decided_ms=begins)

    def _line(self, entry: Entry, cursor: Cursor) -> Line:
        present = self._lines.get(entry.name)
        if (
            present is not None
            and present.next_ms is not None
            and present.cursor is cursor
            and _bounds(present.entry) == _bounds(entry)
        ):
            return Line(entry=entry, cursor=cursor, next_ms=present.next_ms)
        return Line(entry=entry, cursor=cursor, next_ms=self._next(entry, cursor))

    def _next(self, entry: Entry, cursor: Cursor) -> int | None:
        return self._times.next_due(entry, anchor_ms=cursor.anchor_ms, after_ms=cursor.decided_ms)


def _later(stored: Cursor, own: Cursor | None) -> Cursor:
    if own is None or own.definition != stored.definition or own.decided_ms <= stored.decided_ms:
        return stored
    return replace(stored, decided_ms=own.decided_ms)


def _is_single(entry: Entry) -> bool:
    try:
        return kind_of(entry.when) is Kind.CLOCKED
    except TypeError:
        return False


def _bounds(entry: Entry) -> tuple[float | None, float | None]:
    return (entry.starts, entry.ends)
