"""Schedules as people ask about them: when each is due next, and what became of its last due time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import tzinfo

from celery import Celery

from .choice import chosen_register, chosen_ticks
from .due import BadSchedule, definition_of, next_of
from .entry import Entry
from .sources import chosen_source
from .ticks import Cursor, Tick

__all__ = ["Outlook", "outlook", "outlook_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """One schedule. Seconds since 1970."""

    entry: Entry
    next_due: float | None
    """None: never again, or `problem` says why it is not known."""

    last: Tick | None
    """The row of its latest due time."""

    overdue_seconds: float
    """Since a due time that is not decided yet; 0: there is none."""

    problem: str = ""


def outlook(app: Celery, names: Iterable[str] | None = None) -> list[Outlook]:
    """By name; None: of all. Raises SourceUnavailable or TicksUnavailable."""
    entries = chosen_source(app).entries()
    wanted = sorted(entries if names is None else set(names) & set(entries))
    ticks = chosen_ticks(app)
    last = ticks.last(wanted)
    now = chosen_register(app).now()
    return list(outlook_of([entries[name] for name in wanted], ticks.cursors(), last, now, app.timezone))


def outlook_of(
    entries: Iterable[Entry],
    cursors: Mapping[str, Cursor],
    last: Mapping[str, Tick],
    now: float,
    zone: tzinfo,
) -> Iterator[Outlook]:
    """Pure. A schedule that no leader has seen yet, or not since it was changed, is due from now on."""
    for entry in entries:
        problem, due = "", None
        try:
            cursor = cursors.get(entry.name)
            if cursor is not None and cursor.definition != definition_of(
                entry.when, zone=zone, starts=entry.starts
            ):
                cursor = None
            after = now if cursor is None else cursor.decided_ms / 1000
            anchor = now if cursor is None else cursor.anchor_ms / 1000
            due = next_of(entry, after=after, anchor=anchor, zone=zone)
        except BadSchedule as exc:
            problem = str(exc)
        yield Outlook(
            entry=entry,
            next_due=due,
            last=last.get(entry.name),
            overdue_seconds=0.0 if due is None else max(0.0, now - due),
            problem=problem,
        )
