"""What became of what was sent: every item ends as succeeded, came back, or lost; then the operation closes.

The argument. Three things settle an item, each a compare-and-set on one that is not settled:

- The worker tells that the body of a replayed message succeeded (`succeeded`), in the process that ran it.
- Its letter arrives: the transaction that stores it settles the item too (`came_back`).
- Neither was heard, because the teller died or the database was away: the records of successes that workers
  keep are asked (`settle`). After DLQ["LOST_AFTER_SECONDS"] without any of them the item counts as lost.

Each names its item by letter and task id, which is the item's own. An item may be settled before its sender
marks it as sent, or after its sender gave it up because the broker's answer was lost: what succeeded, or came
back, was sent. What was called lost and is heard of after all has its true outcome then.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from random import random
from typing import Any
from uuid import UUID

from celery import Celery
from django.db import OperationalError, transaction
from django.db.models import Case, Count, Exists, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone

from hardening.core.connection import own_connection
from hardening.core.successes import ReplayedWork, successes_of

from ..brief import unwaiting_connection
from ..conf import database_alias, dlq_settings
from ..errors import CannotUnseal
from ..locks import is_lock_conflict
from ..models import DeadLetter, Operation, OperationEvent, OperationItem, OperationMessage
from .cancelled import end_waiting
from .clock import database_now
from .pace import Judged, Ramp, pace_of
from .records import record_of
from .states import ItemState, OperationState

__all__ = ["came_back", "close_settled", "judged_of", "note_success", "settle", "succeeded"]

_log = logging.getLogger(__name__)

ASKED_AFTER_SECONDS = 30.0
"""So long an item waits for the word of its worker before anybody asks."""

_ANSWER_SECONDS = 10
_LOCK_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.02
_ASKED_AT_ONCE = 25
_LOST_AT_ONCE = 1_000
_CLOSING = (OperationState.SETTLING, OperationState.CANCELLED)
_UNSETTLED = (ItemState.WAITING, ItemState.STAGED, ItemState.SENT)
_IGNORED = "The task ended itself by Ignore: without a failure, and without a result."
_asked_up_to = 0


def succeeded(*, letter_id: str, task_id: str, how: str = "", **_: Any) -> None:
    """Receives the event `replay_succeeded`, in the process that ran the task."""
    try:
        pk = UUID(letter_id)
    except ValueError:
        return  # A header that somebody else wrote.
    alias = database_alias()
    began = time.monotonic()
    while True:
        try:
            with unwaiting_connection(alias, _ANSWER_SECONDS):
                note_success(pk, task_id, alias=alias, ignored=how == "ignored")
            return
        except OperationalError as exc:
            # Whoever cannot write it now leaves it to `settle`: the worker's record says it too.
            if not is_lock_conflict(exc) or time.monotonic() - began > _LOCK_PATIENCE_SECONDS:
                raise
        time.sleep(random() * _PAUSE_SECONDS)


def note_success(letter_id: UUID, task_id: str, *, alias: str, ignored: bool = False) -> bool:
    """Whether an item ended by it. `ignored`: the item says that its task ended itself by `Ignore`."""
    now = database_now(alias)
    with transaction.atomic(using=alias):
        # Letters before items, as everybody does: else two would wait for each other. Of a copy the letter
        # has another task id, and stays as it is.
        DeadLetter.objects.using(alias).filter(pk=letter_id, replay_task_id=task_id).prove_replayed(now=now)
        changed = _pending(letter_id, task_id, alias).update(
            state=ItemState.SUCCEEDED,
            settled_at=now,
            sent_at=Coalesce("sent_at", Value(now)),
            **({"error": _IGNORED} if ignored else {}),
        )
    return bool(changed)


def came_back(row: DeadLetter, *, alias: str) -> None:
    """A letter is stored that names another as the one it replays: in the transaction that stores it."""
    if row.replay_of_id is None:
        return
    fingerprint = row.fingerprint
    same = (
        Case(When(fingerprint="", then=Value(None)), When(fingerprint=fingerprint, then=True), default=False)
        if fingerprint
        else Value(None)
    )
    settled_at = database_now(alias)
    _pending(row.replay_of_id, row.task_id, alias).update(
        state=ItemState.CAME_BACK,
        settled_at=settled_at,
        new_letter_id=row.pk,
        same_cause=same,
        sent_at=Coalesce("sent_at", Value(settled_at)),
    )


def settle(*, app: Celery | None = None, seconds: float = 0.2, operation_id: UUID | None = None) -> int:
    """Ask for outcomes that nobody told, call lost what is lost, end what was cancelled, close what is
    settled; for about `seconds`.

    Returns how many items and operations changed.
    """
    now = time.monotonic()
    until = now + seconds
    alias = database_alias()
    changed = 0
    with own_connection(alias):
        changed += _ask(app, alias, operation_id, now + seconds / 2)
        # Each of these is bounded: on a slow machine, too, a turn brings all of them on.
        changed += _call_lost(alias, operation_id)
        changed += end_waiting(operation_id, alias=alias, seconds=until - time.monotonic())
        changed += _close(alias, operation_id)
    return changed


def close_settled(operation_id: UUID) -> bool:
    """Close an operation, if every outcome is known."""
    return bool(_close(database_alias(), operation_id))


def judged_of(operation: Operation) -> Judged:
    """The outcomes since it began or was resumed. More are to come from what is on its way, and, but for a
    ramp, whose steps are judged one by one, from what waits for its turn."""
    coming = [ItemState.STAGED, ItemState.SENT]
    if not isinstance(pace_of(operation.pace), Ramp):
        coming.append(ItemState.WAITING)
    items = OperationItem.objects.using(database_alias()).filter(operation_id=operation.pk).order_by()
    began = operation.judged_from or operation.started_at
    recent = items.filter(settled_at__isnull=False)
    if began is not None:
        recent = recent.filter(settled_at__gte=began)
    numbers: dict[str, int] = {}
    same = 0
    for state, same_cause, number in (
        recent.values_list("state", "same_cause")
        .annotate(number=Count("pk"))
        .values_list("state", "same_cause", "number")
    ):
        numbers[state] = numbers.get(state, 0) + number
        same += number if state == ItemState.CAME_BACK and same_cause else 0
    return Judged(
        succeeded=numbers.get(ItemState.SUCCEEDED, 0),
        came_back=numbers.get(ItemState.CAME_BACK, 0),
        same_cause=same,
        lost=numbers.get(ItemState.LOST, 0),
        outstanding=int(items.filter(state__in=coming).exists()),
    )


def _pending(letter_id: UUID, task_id: str, alias: str) -> QuerySet[OperationItem]:
    """The item that this message is of, unless its true outcome is known."""
    given_back = Q(state=ItemState.WAITING, staged_at__isnull=False)
    cancelled = Q(state=ItemState.NOT_SENT, staged_at__isnull=False)
    open_ones = Q(state__in=(ItemState.STAGED, ItemState.SENT, ItemState.LOST))
    return OperationItem.objects.using(alias).filter(
        given_back | cancelled | open_ones, letter_id=letter_id, task_id=task_id
    )


def _ask(app: Celery | None, alias: str, operation_id: UUID | None, until: float) -> int:
    """Some of those that are sent for a while: others have their turn at the next call."""
    global _asked_up_to
    successes = successes_of(app)
    if successes is None:
        return 0
    before = database_now(alias) - timedelta(seconds=ASKED_AFTER_SECONDS)
    items = _of(operation_id, alias).filter(state=ItemState.SENT, sent_at__lt=before).select_related("letter")
    batch = list(items.filter(pk__gt=_asked_up_to).order_by("pk")[:_ASKED_AT_ONCE])
    changed = 0
    for item in batch:
        _asked_up_to = item.pk
        work = _work_of(item)
        if work is not None and successes.known([work])[0]:
            changed += note_success(item.letter_id, item.task_id, alias=alias)
        # Each is a question to a store: a slow one must not keep a worker's parent.
        if time.monotonic() >= until:
            return changed
    if len(batch) < _ASKED_AT_ONCE:
        _asked_up_to = 0
    return changed


def _work_of(item: OperationItem) -> ReplayedWork | None:
    try:
        letter = item.letter
        record = record_of(
            letter.sealed if item.sealed is None else item.sealed,
            letter.sealed_with if item.sealed is None else item.sealed_with,
            letter.pk,
        )
    except (CannotUnseal, DeadLetter.DoesNotExist):
        return None
    return ReplayedWork(
        delivery_key=item.delivery_key, replay_number=item.replay_number, body=record.payload.body
    )


def _call_lost(alias: str, operation_id: UUID | None) -> int:
    now = database_now(alias)
    before = now - timedelta(seconds=dlq_settings().lost_after_seconds)
    lost = list(
        _of(operation_id, alias)
        .filter(state=ItemState.SENT, sent_at__lt=before)
        .values_list("pk", flat=True)[:_LOST_AT_ONCE]
    )
    if not lost:
        return 0
    return int(
        _items(alias).filter(pk__in=lost, state=ItemState.SENT).update(state=ItemState.LOST, settled_at=now)
    )


def _close(alias: str, operation_id: UUID | None) -> int:
    """In two steps: which ones, without a lock; then each, if it is so still."""
    unsettled = OperationItem.objects.using(alias).filter(operation_id=OuterRef("pk"), state__in=_UNSETTLED)
    rows = Operation.objects.using(alias).filter(state__in=_CLOSING)
    if operation_id is not None:
        rows = rows.filter(pk=operation_id)
    closed = 0
    for pk in list(rows.filter(~Exists(unsettled)).order_by().values_list("pk", flat=True)[:100]):
        now = timezone.now()
        with transaction.atomic(using=alias):
            changed = Operation.objects.using(alias).filter(pk=pk, state__in=_CLOSING)
            if changed.update(state=OperationState.CLOSED, closed_at=now):
                OperationEvent.objects.using(alias).bulk_create(
                    [OperationEvent(operation_id=pk, at=now, by="outcomes", what="closed")]
                )
                # Of a chord that was cancelled, or refused: nothing is owed any more.
                OperationMessage.objects.using(alias).filter(operation_id=pk).delete()
                closed += 1
    return closed


def _items(alias: str) -> QuerySet[OperationItem]:
    return OperationItem.objects.using(alias).all()


def _of(operation_id: UUID | None, alias: str) -> QuerySet[OperationItem]:
    """Items of one operation, or of those that are not closed."""
    if operation_id is not None:
        return _items(alias).filter(operation_id=operation_id)
    live = Operation.objects.using(alias).filter(
        state__in=(OperationState.RUNNING, OperationState.PAUSED, *_CLOSING)
    )
    return _items(alias).filter(operation_id__in=live.values("pk"))
