"""Ticks, cursors and decisions as rows of the models, and back. Pure."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from beat_leader.models.names import clean, key_of, restored, stored
from beat_leader.models.ticks import CursorRow, TickRow
from beat_leader.ticks import Cursor, Decision, Outcome, State, Tick, row_of

__all__ = ["COLUMNS", "cursor_of", "cursor_row", "tick_of", "tick_row", "uuid_of"]

COLUMNS = (
    *("schedule", "due_ms", "state", "task_id", "epoch", "decided_ms", "sent_ms", "why"),
    *("outcome", "started_ms", "ended_ms", "detail", "first_ms", "count"),
)
"""Of TickRow: what a Tick is made of."""


def cursor_row(cursor: Cursor) -> CursorRow:
    return CursorRow(
        key=key_of(cursor.schedule),
        schedule=stored(cursor.schedule),
        definition=stored(cursor.definition),
        anchor_ms=cursor.anchor_ms,
        decided_ms=cursor.decided_ms,
    )


def cursor_of(schedule: str, definition: str, anchor_ms: int, decided_ms: int) -> Cursor:
    return Cursor(
        schedule=restored(schedule),
        definition=restored(definition),
        anchor_ms=anchor_ms,
        decided_ms=decided_ms,
    )


def tick_row(decision: Decision, epoch: int) -> TickRow:
    tick = row_of(decision, epoch)
    return TickRow(
        task_id=UUID(tick.task_id),
        key=key_of(tick.schedule),
        schedule=stored(tick.schedule),
        due_ms=tick.due_ms,
        state=tick.state.value,
        why=clean(tick.why),
        epoch=epoch,
        decided_ms=tick.decided_ms,
        first_ms=tick.first_ms,
        count=tick.count,
    )


def tick_of(values: tuple[Any, ...]) -> Tick:
    """Of the values of COLUMNS."""
    found = dict(zip(COLUMNS, values, strict=True))
    return Tick(
        **{
            **found,
            "schedule": restored(found["schedule"]),
            "state": State(found["state"]),
            "task_id": str(found["task_id"]),
            "outcome": Outcome(found["outcome"]),
        }
    )


def uuid_of(task_id: str) -> UUID | None:
    """None: it is none of ours."""
    try:
        return UUID(task_id)
    except ValueError:
        return None
