"""Ticks and register in memory: for tests, and for who runs everything in one process."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from beat_leader.register import Role, Sign, TermRecord
from beat_leader.ticks import (
    Cursor,
    Decision,
    OldEpoch,
    Outcome,
    State,
    Tick,
    follows,
    moved,
    row_of,
    task_id_for,
)

__all__ = ["Register", "Ticks"]

_SIGN_SECONDS = 86_400.0
_TERMS_KEPT = 1_000
_REFUSALS_SHOWN = 100


class Ticks:
    """Shared by whoever has the object."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._newest = 0
        self._cursors: dict[str, Cursor] = {}
        self._rows: dict[str, Tick] = {}

    def open_term(self, epoch: int) -> None:
        """From now on no lower epoch writes."""
        with self._lock:
            self._enter(epoch)

    def newest_epoch(self) -> int:
        """0: none was seen."""
        return self._newest

    def cursors(self) -> dict[str, Cursor]:
        """By schedule."""
        with self._lock:
            return dict(self._cursors)

    def put_cursors(self, epoch: int, cursors: Iterable[Cursor]) -> None:
        """One of the same definition never goes back."""
        with self._lock:
            self._enter(epoch)
            for cursor in cursors:
                self._cursors[cursor.schedule] = moved(self._cursors.get(cursor.schedule), cursor)

    def drop_cursors(self, epoch: int, schedules: Iterable[str]) -> None:
        """They begin anew if they come back."""
        with self._lock:
            self._enter(epoch)
            for schedule in schedules:
                self._cursors.pop(schedule, None)

    def decide(self, epoch: int, decisions: Sequence[Decision]) -> list[bool]:
        """A row for each, unless it was decided before."""
        with self._lock:
            self._enter(epoch)
            return [self._decide(epoch, decision) for decision in decisions]

    def sent(self, epoch: int, ticks: Sequence[tuple[str, int]], now_ms: int) -> None:
        """DUE rows become SENT."""
        with self._lock:
            self._enter(epoch)
            for schedule, due_ms in ticks:
                self._end(schedule, due_ms, state=State.SENT, epoch=epoch, sent_ms=now_ms)

    def missed(self, epoch: int, schedule: str, due_ms: int, why: str) -> None:
        """A DUE row becomes MISSED."""
        with self._lock:
            self._enter(epoch)
            self._end(schedule, due_ms, state=State.MISSED, epoch=epoch, why=why)

    def unfinished(self) -> list[Tick]:
        """DUE rows, the oldest first."""
        return self._sorted(lambda row: row.state is State.DUE)

    def note(self, task_id: str, outcome: Outcome, at_ms: int, detail: str = "") -> bool:
        """Forward only."""
        with self._lock:
            row = self._rows.get(task_id)
            if row is not None and follows(row.outcome, outcome):
                when = "started_ms" if outcome is Outcome.STARTED else "ended_ms"
                self._rows[task_id] = _changed(row, outcome=outcome, detail=detail, **{when: at_ms})
            return row is not None

    def last(self, schedules: Sequence[str] | None = None) -> dict[str, Tick]:
        """The latest row of each."""
        rows = {row.schedule: row for row in self._sorted(lambda row: True)}
        return rows if schedules is None else {name: rows[name] for name in schedules if name in rows}

    def last_sent(self, schedule: str) -> Tick | None:
        """The latest SENT or DUE row."""
        sent = (State.SENT, State.DUE)
        rows = self._sorted(lambda row: row.schedule == schedule and row.state in sent)
        return rows[-1] if rows else None

    def history(
        self, schedule: str | None = None, *, limit: int = 100, before: tuple[int, str] | None = None
    ) -> list[Tick]:
        """The latest first."""

        def fits(row: Tick) -> bool:
            return schedule in (None, row.schedule) and (
                before is None or (row.due_ms, row.schedule) < before
            )

        return self._sorted(fits)[::-1][:limit]

    def late(self, *, before_ms: int) -> list[Tick]:
        """DUE rows from before then."""
        return [row for row in self.unfinished() if row.due_ms < before_ms][:100]

    def prune(self, *, before_ms: int, most: int, limit: int = 1000) -> int:
        """Delete rows that ended and are old, or too many, and not the latest of a schedule that there is."""
        with self._lock:
            newer: Counter[str] = Counter()
            old = []
            for row in self._sorted(lambda row: True)[::-1]:
                over = row.due_ms < before_ms or newer[row.schedule] >= most
                latest = not newer[row.schedule] and row.schedule in self._cursors
                if over and not latest and row.state is not State.DUE:
                    old.append(row.task_id)
                newer[row.schedule] += 1
            for task_id in old[::-1][:limit]:
                del self._rows[task_id]
            return min(len(old), limit)

    def counts(self, *, since_ms: int) -> Mapping[State, int]:
        """Rows in each state."""
        found = Counter(row.state for row in self._sorted(lambda row: row.due_ms >= since_ms))
        return {state: found[state] for state in State}

    def close(self) -> None:
        """Nothing is open."""

    def _enter(self, epoch: int) -> None:
        if epoch < self._newest:
            raise OldEpoch(epoch, self._newest)
        self._newest = epoch

    def _decide(self, epoch: int, decision: Decision) -> bool:
        cursor = self._cursors.get(decision.schedule)
        row = row_of(decision, epoch)
        there = self._rows.get(row.task_id)
        if there is not None:
            return (there.epoch, there.decided_ms) == (epoch, decision.decided_ms)
        if cursor and decision.due_ms <= cursor.decided_ms:
            return False
        self._rows[row.task_id] = row
        if cursor:
            self._cursors[decision.schedule] = replace(cursor, decided_ms=decision.due_ms)
        return True

    def _end(self, schedule: str, due_ms: int, **changes: Any) -> None:
        row = self._rows.get(task_id_for(schedule, due_ms))
        if row is not None and row.state is State.DUE:
            self._rows[row.task_id] = _changed(row, **changes)

    def _sorted(self, fits: Callable[[Tick], bool]) -> list[Tick]:
        with self._lock:
            return sorted(filter(fits, self._rows.values()), key=lambda row: (row.due_ms, row.schedule))


def _changed(row: Tick, **changes: Any) -> Tick:
    return replace(row, **changes)


class Register:
    """Shared by whoever has the object."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._signs: dict[str, Sign] = {}
        self._terms: dict[int, TermRecord] = {}
        self._refusals: list[tuple[float, int, str, str]] = []
        self._requests: dict[int, str] = {}

    def tell(self, sign: Sign) -> float:
        """Keep it as the holder's latest."""
        with self._lock:
            now = self._clock()
            self._signs[sign.holder] = replace(sign, at=now)
            for holder in [each.holder for each in self._signs.values() if each.at < now - _SIGN_SECONDS]:
                del self._signs[holder]
            return now

    def signs(self) -> list[Sign]:
        """Leader first, then the latest."""
        with self._lock:
            return sorted(self._signs.values(), key=lambda sign: (sign.role is not Role.LEADER, -sign.at))

    def leave(self, holder: str) -> None:
        """It stopped cleanly."""
        with self._lock:
            self._signs.pop(holder, None)

    def term_began(self, epoch: int, holder: str) -> None:
        """Kept once for each epoch."""
        with self._lock:
            if epoch not in self._terms:
                self._terms[epoch] = TermRecord(epoch=epoch, holder=holder, began=self._clock())
            for old in sorted(self._terms)[:-_TERMS_KEPT]:
                del self._terms[old]
            for old in [each for each in self._requests if each < epoch]:
                del self._requests[old]

    def term_sent(self, epoch: int) -> None:
        """It sent its first message."""
        with self._lock:
            term = self._terms.get(epoch)
            if term is not None and term.first_sent is None:
                self._terms[epoch] = replace(term, first_sent=self._clock())

    def term_ended(self, epoch: int, end: str) -> None:
        """The first end stays."""
        with self._lock:
            self._requests.pop(epoch, None)
            term = self._terms.get(epoch)
            if term is not None and term.ended is None:
                self._terms[epoch] = replace(term, ended=self._clock(), end=end)

    def terms(self, limit: int = 100) -> list[TermRecord]:
        """The latest first."""
        with self._lock:
            return [self._terms[epoch] for epoch in sorted(self._terms, reverse=True)[:limit]]

    def refused(self, epoch: int, holder: str, what: str) -> None:
        """A write of an old epoch."""
        with self._lock:
            self._refusals = [(self._clock(), epoch, holder, what), *self._refusals][:_REFUSALS_SHOWN]

    def refusals(self, *, since: float) -> list[tuple[float, int, str, str]]:
        """The latest first."""
        with self._lock:
            return [each for each in self._refusals if each[0] >= since]

    def ask_to_resign(self, epoch: int, by: str) -> None:
        """Forgotten with the term."""
        with self._lock:
            self._requests[epoch] = by

    def asked_to_resign(self, epoch: int) -> str | None:
        """By whom."""
        return self._requests.get(epoch)

    def now(self) -> float:
        """The clock's."""
        return self._clock()

    def close(self) -> None:
        """Nothing is open."""
