"""Ends what waits in cancelled operations, a batch at a time: the cancel itself is one change of one row.

The argument. From that change on nothing is staged (see `runner`), so what waits is sent by nobody,
whatever its row says yet. A batch is one UPDATE of items that wait: it commits or not, and whoever comes
next, after any death, finds what waits still. The operation closes when none does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from uuid import UUID

from ..locks import patient
from ..models import Operation, OperationItem
from .clock import database_now
from .examine import ItemVerdict
from .states import ItemState, OperationState

__all__ = ["END_AT_ONCE", "end_waiting"]

END_AT_ONCE = 1_000
"""Items in one batch: a small operation ends with its cancel."""


def end_waiting(operation_id: UUID | None, *, alias: str, seconds: float | None = None) -> int:
    """End waiting items of cancelled operations, or of this one if it is; returns how many.

    At least one batch, and for about `seconds`; None: all.
    """
    until = None if seconds is None else time.monotonic() + seconds
    cancelled = Operation.objects.using(alias).filter(state=OperationState.CANCELLED)
    if operation_id is not None:
        cancelled = cancelled.filter(pk=operation_id)
    ended = 0
    for pk in list(cancelled.order_by("created_at").values_list("pk", flat=True)):
        while batch := _waiting(pk, alias):
            ended += _end(batch, alias)
            if until is not None and time.monotonic() >= until:
                return ended
    return ended


def _waiting(operation_id: UUID, alias: str) -> list[int]:
    items = OperationItem.objects.using(alias).filter(operation_id=operation_id, state=ItemState.WAITING)
    return list(items.order_by("position").values_list("pk", flat=True)[:END_AT_ONCE])


@patient
def _end(batch: Iterable[int], alias: str) -> int:
    waiting = OperationItem.objects.using(alias).filter(pk__in=batch, state=ItemState.WAITING)
    return waiting.update(
        state=ItemState.NOT_SENT, verdict=ItemVerdict.CANCELLED, settled_at=database_now(alias)
    )
