"""What people do to an operation, and what it does to itself: each a compare-and-set, with its audit row.

The change of the row and that of the audit trail are one transaction. Whoever comes second changes nothing,
is told so, and leaves no trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from ..conf import database_alias, dlq_settings
from ..errors import OwnApproval
from ..models import NAME_LENGTH, Operation, OperationEvent
from ..text import clean, clip
from .cancelled import end_waiting
from .clock import database_now
from .states import OperationState, PausedBecause, sources_of_operation

__all__ = ["approve", "cancel", "pause", "record_event", "resume", "start"]


def start(operation_id: UUID, *, by: str, approved: bool = False) -> bool:
    """Planned -> running; or, with more letters than DLQ["APPROVAL_ABOVE"], -> awaiting approval.

    This transaction is the request to send: whoever runs operations finds it, whatever becomes of the caller.
    `approved`: by who stands above that setting, as who has the machine's command line.
    """
    above = None if approved else dlq_settings().approval_above
    if above is not None and _change(
        operation_id,
        by,
        "approval asked",
        OperationState.AWAITING_APPROVAL,
        where=Q(state=OperationState.PLANNED, total__gt=above),
    ):
        return True
    now = database_now(database_alias())
    where = Q(state=OperationState.PLANNED)
    if above is not None:
        where &= Q(total__lte=above)
    return _change(operation_id, by, "started", OperationState.RUNNING, where=where, started_at=now)


def approve(operation_id: UUID, *, by: str) -> bool:
    """Awaiting approval -> running. Raises OwnApproval for who made it: it takes a second person."""
    name = clip(by, NAME_LENGTH)
    if Operation.objects.using(database_alias()).filter(pk=operation_id, created_by=name).exists():
        raise OwnApproval(f"{name} made this operation; somebody else must approve it")
    now = database_now(database_alias())
    return _change(
        operation_id,
        by,
        "approved",
        OperationState.RUNNING,
        where=Q(state=OperationState.AWAITING_APPROVAL),
        approved_by=name,
        approved_at=now,
        started_at=now,
    )


def pause(
    operation_id: UUID, *, by: str, because: PausedBecause = PausedBecause.PERSON, detail: str = ""
) -> bool:
    """Running -> paused. What is staged at this moment is sent still."""
    return _change(
        operation_id,
        by,
        "paused",
        OperationState.PAUSED,
        detail={"because": because.value, "detail": detail},
        paused_because=because.value,
        pause_detail=clean(detail),
    )


def resume(operation_id: UUID, *, by: str) -> bool:
    """Paused -> running. Outcomes until now pause it no more."""
    return _change(
        operation_id,
        by,
        "resumed",
        OperationState.RUNNING,
        where=Q(state=OperationState.PAUSED),
        paused_because="",
        pause_detail="",
        # The database's time, as outcomes have it: whose clock is wrong is no reason to miss one.
        judged_from=database_now(database_alias()),
    )


def cancel(operation_id: UUID, *, by: str) -> bool:
    """Nothing more is sent: what waits ends as not sent, and its letters are as they were.

    One change of one row, whatever the size; of a large operation the items are ended afterwards, by who runs
    operations (see `cancelled`). What was sent is followed to its outcome.
    """
    if not _change(operation_id, by, "cancelled", OperationState.CANCELLED):
        return False
    end_waiting(operation_id, alias=database_alias(), seconds=0)
    return True


def record_event(operation_id: UUID, *, by: str, what: str, detail: Mapping[str, Any], alias: str) -> None:
    """One row of the audit trail, in the caller's transaction."""
    OperationEvent.objects.using(alias).bulk_create(
        [
            OperationEvent(
                operation_id=operation_id,
                at=timezone.now(),
                by=clip(by, NAME_LENGTH),
                what=what,
                detail=dict(detail),
            )
        ]
    )


def _change(
    operation_id: UUID,
    by: str,
    what: str,
    new: OperationState,
    *,
    where: Q | None = None,
    detail: Mapping[str, Any] | None = None,
    **changes: Any,
) -> bool:
    alias = database_alias()
    with transaction.atomic(using=alias):
        rows = Operation.objects.using(alias).filter(
            where if where is not None else Q(), pk=operation_id, state__in=sources_of_operation(new)
        )
        if not rows.update(state=new, **changes):
            return False
        record_event(operation_id, by=by, what=what, detail=detail or {}, alias=alias)
    return True
