"""What the message of a due time carries. Pure.

The same for whoever sends it: task id and headers come from schedule and due time, so that workers take two
messages of one due time for one work, record its success, and refuse a second start.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hardening.core.identity import BEAT_HEADER, SUPERSEDED_HEADER, TWIN_HEADER

from .entry import Entry
from .ticks import task_id_for

__all__ = ["beat_header", "expires_at", "is_of", "options_of"]

_LEAST_SECONDS = 1.0


def beat_header(schedule: str, due_ms: int) -> str:
    """The value of BEAT_HEADER."""
    return f"{due_ms} {schedule}"


def is_of(scheduled: str, delivery_key: str) -> bool:
    """Whether a value of BEAT_HEADER is of the task with this key: one may pass its headers on to others."""
    due, _, schedule = scheduled.partition(" ")
    return due.isdecimal() and task_id_for(schedule, int(due)) == delivery_key


def expires_at(*, due_ms: int, next_ms: int, now: float) -> float:
    """When a message is worth nothing any more: at the next due time; one that is sent later than that has
    as long as there is between the two. Never less than a second."""
    following = next_ms / 1000
    if following >= now + _LEAST_SECONDS:
        return following
    return now + max(_LEAST_SECONDS, (next_ms - due_ms) / 1000)


def options_of(entry: Entry, *, due_ms: int, next_ms: int | None, now: float) -> dict[str, Any]:
    """The options of `apply_async`: those of the schedule, and ours."""
    task_id = task_id_for(entry.name, due_ms)
    options = dict(entry.options)
    options["task_id"] = task_id
    options["headers"] = {
        "celery_beat_task": True,  # As Celery has it from 5.7 on.
        "periodic_task_name": entry.name,
        **(options.get("headers") or {}),
        TWIN_HEADER: f"beat {task_id}",
        BEAT_HEADER: beat_header(entry.name, due_ms),
    }
    if entry.policy.expires and next_ms is not None and options.get("expires") is None:
        moment = expires_at(due_ms=due_ms, next_ms=next_ms, now=now)
        options["expires"] = datetime.fromtimestamp(moment, UTC)
        options["headers"][SUPERSEDED_HEADER] = 1
    # Who publishes tries again itself, and looks at its term before each try.
    options.setdefault("retry", False)
    return options
