"""The two questions, asked of any schedule object of Celery's: what is due next, and what was due between."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, tzinfo
from typing import Any, Protocol, TypeVar

from ..entry import Entry
from .cron import CronSeries
from .interval import interval_of
from .kinds import Kind, kind_of
from .others import AskedSeries, EstimatedSeries, OneTime
from .values import BadSchedule, Due
from .zones import zone_of

__all__ = ["check", "due_between", "due_of", "next_due", "next_of", "zone_of"]

T = TypeVar("T")

_MS = 0.001


class _Series(Protocol):
    def next(self, after: float) -> float | None: ...

    def between(self, after: float, until: float, keep: int) -> Due: ...


def next_due(when: Any, *, after: float, anchor: float, zone: tzinfo, name: str = "") -> float | None:
    """The first due time strictly after `after`; None: never again.

    `anchor`: from where intervals count; the first is one interval after it. `zone`: of crontabs that have
    none of their own, the app's. For a schedule of a class of the project's whose `is_due` is its own, it is
    when to ask `due_between` again, which may find nothing due yet: look again a second later then.
    Raises BadSchedule, with `name`, and nothing else.
    """
    return _asked(name, lambda: _series(when, anchor, zone, name).next(after))


def due_between(
    when: Any, *, after: float, until: float, anchor: float, zone: tzinfo, keep: int, name: str = ""
) -> Due:
    """The due times in (after, until]: the latest `keep` of them as a list, and how many were before those.

    As cheap for a million as for `keep`, but for schedules of the project's own classes, where the count is
    a lower bound beyond 10,000. Raises BadSchedule, with `name`, and nothing else.
    """
    if until <= after:
        return Due()
    return _asked(name, lambda: _series(when, anchor, zone, name).between(after, until, max(1, keep)))


def check(when: Any, name: str = "") -> None:
    """Raises BadSchedule for what can never be due: no schedule at all, or an interval of no length."""
    _asked(name, lambda: _series(when, 0.0, UTC, name))


def next_of(entry: Entry, *, after: float, anchor: float, zone: tzinfo) -> float | None:
    """As `next_due`, between the start and the end of the entry."""
    found = next_due(
        entry.when, after=_from(entry, after), anchor=_anchor(entry, anchor), zone=zone, name=entry.name
    )
    return None if found is None or (entry.ends is not None and found >= entry.ends) else found


def due_of(entry: Entry, *, after: float, until: float, anchor: float, zone: tzinfo, keep: int) -> Due:
    """As `due_between`, between the start and the end of the entry."""
    end = until if entry.ends is None else min(until, entry.ends - _MS)
    return due_between(
        entry.when,
        after=_from(entry, after),
        until=end,
        anchor=_anchor(entry, anchor),
        zone=zone,
        keep=keep,
        name=entry.name,
    )


def _from(entry: Entry, after: float) -> float:
    return after if entry.starts is None else max(after, entry.starts - _MS)


def _anchor(entry: Entry, anchor: float) -> float:
    """An interval with a start is due at its start, and counts from there."""
    if entry.starts is None or kind_of(entry.when) is not Kind.INTERVAL:
        return anchor
    return entry.starts - float(entry.when.run_every.total_seconds())


def _series(when: Any, anchor: float, zone: tzinfo, name: str) -> _Series:
    kind = kind_of(when)
    if kind is Kind.CRON:
        return CronSeries(when, zone)
    if kind is Kind.INTERVAL:
        return interval_of(when.run_every, when.relative, anchor, zone, name)
    if kind is Kind.CLOCKED:
        return OneTime(when.clocked_time)
    if kind is Kind.ASKED:
        return AskedSeries(when, zone)
    return EstimatedSeries(when, zone, apart=1 if kind is Kind.SOLAR else 0)


def _asked(name: str, question: Callable[[], T]) -> T:
    try:
        return question()
    except BadSchedule:
        raise
    except Exception as exc:
        # The project's own code, or sets of a crontab that were changed by hand: one schedule's matter.
        raise BadSchedule(name, f"{type(exc).__name__}: {exc}") from exc
