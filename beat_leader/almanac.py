"""Almanac: due times as the tick store counts them, in milliseconds, and what becomes of them. Pure."""

from __future__ import annotations

from datetime import tzinfo

from .due import BadSchedule, Due, definition_of, due_of, next_of
from .entry import Entry
from .misfire import decide, keep_of, window_seconds
from .ticks import Cursor, Decision, Outcome, Tick

__all__ = ["Almanac", "overlaps"]

_ENDED = (Outcome.SUCCEEDED, Outcome.DEAD, Outcome.CANCELLED)


class Almanac:
    """`zone`: of schedules that have none of their own."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone

    def definition(self, entry: Entry) -> str:
        """A digest of when it is due: another one, another series of due times."""
        try:
            return definition_of(entry.when, zone=self._zone, starts=entry.starts)
        # A schedule of the project's own class may raise anything.
        except Exception as exc:
            raise BadSchedule(entry.name, f"{type(exc).__name__}: {exc}") from exc

    def next_due(self, entry: Entry, *, anchor_ms: int, after_ms: int) -> int | None:
        """The first due time after that; None: there is none any more."""
        found = next_of(entry, after=after_ms / 1000, anchor=anchor_ms / 1000, zone=self._zone)
        return None if found is None else round(found * 1000)

    def decide(
        self, entry: Entry, cursor: Cursor, *, now_ms: int, last: Tick | None = None
    ) -> list[Decision]:
        """What becomes of all that was due since its cursor. `last`: the latest that was sent, where the
        schedule must not overlap."""
        due: Due = due_of(
            entry,
            after=cursor.decided_ms / 1000,
            until=now_ms / 1000,
            anchor=cursor.anchor_ms / 1000,
            zone=self._zone,
            keep=keep_of(entry),
        )
        if not due:
            return []
        overlapping = last is not None and overlaps(last, now_ms, entry.policy.overlap_seconds)
        return decide(entry, due, now=now_ms / 1000, overlapping=overlapping)

    def until_ms(self, entry: Entry, *, due_ms: int, next_ms: int | None, decided_ms: int) -> int:
        """How long it may be tried to send it."""
        window = window_seconds(
            entry,
            due_ms / 1000,
            None if next_ms is None else next_ms / 1000,
            decided=decided_ms / 1000,
        )
        return due_ms + round(window * 1000)


def overlaps(last: Tick, now_ms: int, most_seconds: float) -> bool:
    """Whether the task of this due time is to be taken for running, or on its way to a worker."""
    if last.outcome in _ENDED:
        return False
    heard_ms = max(last.decided_ms, last.sent_ms or 0, last.started_ms or 0)
    return now_ms - heard_ms < most_seconds * 1000
