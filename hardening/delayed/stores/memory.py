"""MemoryDelayedStore: delayed messages of one process, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from hardening.delayed.entry import Cancelled, Delayed, Fate
from hardening.delayed.store import (
    CANCELLED_SECONDS,
    POSTPONED_SECONDS,
    RELEASED_SECONDS,
    Publish,
    Turn,
)

__all__ = ["MemoryDelayedStore"]


@dataclass(slots=True)
class _Row:
    entry: Delayed
    number: int
    next_at: float


class MemoryDelayedStore:
    """Messages in this process, gone with it. Safe in threads. Its clock can be given."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._rows: dict[str, _Row] = {}
        self._released: dict[str, float] = {}
        self._cancelled: dict[str, Cancelled] = {}
        self._parked = 0

    def begin(self) -> None:
        """Nothing changes."""

    def pause(self) -> None:
        """Nothing changes: nothing is open."""

    def park(self, entry: Delayed) -> Fate:
        with self._lock:
            known, now = self.fate(entry.id), self._clock()
            if known is not Fate.UNKNOWN:
                return known
            if entry.due <= now:
                return Fate.DUE
            self._parked += 1
            self._rows[entry.id] = _Row(replace(entry, parked_at=now), self._parked, entry.due)
            return Fate.PARKED

    def fate(self, entry_id: str) -> Fate:
        now = self._clock()
        with self._lock:
            if entry_id in self._rows:
                return Fate.PARKED
            if self._released.get(entry_id, 0.0) > now - RELEASED_SECONDS:
                return Fate.RELEASED
            record = self._cancelled.get(entry_id)
            gone = record is None or record.at <= now - CANCELLED_SECONDS
            return Fate.UNKNOWN if gone else Fate.CANCELLED

    def release(self, publish: Publish, *, limit: int) -> Turn:
        with self._lock:
            now = self._clock()
            due = [row for row in self._ordered() if row.next_at <= now][:limit]
            sent = set(publish([row.entry for row in due])) if due else set()
            for row in due:
                if row.entry.id in sent:
                    del self._rows[row.entry.id]
                    self._released[row.entry.id] = now
                else:
                    row.next_at = now + POSTPONED_SECONDS
            soonest = min((row.next_at for row in self._rows.values()), default=None)
            return Turn(
                released=len(sent),
                postponed=len(due) - len(sent),
                next_in=None if soonest is None else max(0.0, soonest - now),
            )

    def cancel(self, entry_id: str, *, by: str) -> tuple[Delayed, Cancelled] | None:
        with self._lock:
            row = self._rows.pop(entry_id, None)
            if row is None:
                return None
            entry = row.entry
            record = Cancelled(
                id=entry.id,
                task_id=entry.task_id,
                task=entry.task,
                queue=entry.queue,
                due=entry.due,
                at=self._clock(),
                by=by,
            )
            self._cancelled[entry.id] = record
            return entry, record

    def count(self) -> int:
        return len(self._rows)

    def page(self, *, offset: int, limit: int) -> list[Delayed]:
        with self._lock:
            return [replace(row.entry, message="") for row in self._ordered()[offset : offset + limit]]

    def find(self, key: str) -> list[Delayed]:
        with self._lock:
            rows = [row.entry for row in self._ordered() if key in (row.entry.id, row.entry.task_id)]
            return [replace(entry, message="") for entry in rows[:100]]

    def cancellations(self, *, limit: int) -> list[Cancelled]:
        with self._lock:
            since = self._clock() - CANCELLED_SECONDS
            records = [record for record in self._cancelled.values() if record.at > since]
            return sorted(records, key=lambda record: record.at, reverse=True)[:limit]

    def close(self) -> None:
        """Nothing is open."""

    def _ordered(self) -> list[_Row]:
        return sorted(self._rows.values(), key=lambda row: (row.next_at, row.number))
