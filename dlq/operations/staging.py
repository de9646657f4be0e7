"""The writes of a runner, each one transaction that names its lease: stage, take up again, mark, give back.

Locks are taken in one order: operation, letters, items. Claims of several operations over the same letters
may still meet; the one that loses is done again. Nothing here is per letter: a chunk costs the same few
statements whatever its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import F, Q

from ..conf import dlq_settings
from ..locks import patient
from ..models import DeadLetter, DeadLetterQuerySet, Operation, OperationItem
from .examine import ItemVerdict, standing_of
from .lease import Lease
from .messages import copy_task_id
from .states import ItemState, Kind, OperationState

__all__ = ["Staged", "give_back", "mark_sent", "not_sendable", "stage", "take_up"]

RUNNING = Q(state=OperationState.RUNNING)
_COLUMNS = ("pk", "letter_id", "task_id", "sealed", "sealed_with")


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """An item whose message is owed, with the message as it is stored."""

    item_id: int
    letter_id: UUID
    task_id: str
    sealed: Any
    sealed_with: str


@patient
def stage(lease: Lease, operation: Operation, count: int) -> tuple[list[Staged], int]:
    """Claim the letters of the next `count` waiting items. Returns them, and how many items were looked at.

    Items whose letter cannot be claimed end as not sent, with why. Raises LeaseLost.
    """
    kind = Kind(operation.kind)
    with lease.fenced(RUNNING) as now:
        items = _items(lease)
        rows = list(items.filter(state=ItemState.WAITING).order_by("position").values_list(*_COLUMNS)[:count])
        if not rows:
            return [], 0
        letter_ids = [row[1] for row in rows]
        if kind is Kind.COPY:
            rows = _named(lease, rows)
        if kind is Kind.REPLAY:
            _claimable(lease, letter_ids, operation).claim(
                by=operation.created_by,
                token=operation.pk,
                now=now,
                stale_before=now - timedelta(seconds=dlq_settings().stale_claim_seconds),
            )
        stored = _stored(lease, letter_ids, kind)
        good = [row for row in rows if row[1] in stored]
        items.filter(pk__in=[row[0] for row in good], state=ItemState.WAITING).update(
            state=ItemState.STAGED, staged_at=now, error=""
        )
        _leave_alone(lease, operation, [row for row in rows if row[1] not in stored], now)
        Operation.objects.using(lease.alias).filter(pk=operation.pk).update(
            step_sent=F("step_sent") + len(good)
        )
    return [_staged(row, stored) for row in good], len(rows)


@patient
def take_up(lease: Lease, operation: Operation, count: int) -> list[Staged]:
    """What an earlier runner staged and did not mark: its messages may be out, or not. Raises LeaseLost.

    Claims are renewed. A letter that another operation took over meanwhile, because our claim was stale, is
    that one's: it has sent the same message.
    """
    kind = Kind(operation.kind)
    with lease.fenced() as now:
        items = _items(lease)
        rows = list(items.filter(state=ItemState.STAGED).order_by("position").values_list(*_COLUMNS)[:count])
        if not rows:
            return []
        letter_ids = [row[1] for row in rows]
        if kind is Kind.REPLAY:
            _letters(lease, letter_ids).renew_claim(operation.pk, now=now)
        stored = _stored(lease, letter_ids, kind)
        lost = [row[0] for row in rows if row[1] not in stored]
        if lost:
            # Still staged: its success or its letter may have closed both since we looked.
            _end(items.filter(pk__in=lost, state=ItemState.STAGED), ItemVerdict.CLAIMED, now)
    return [_staged(row, stored) for row in rows if row[1] in stored]


@patient
def mark_sent(lease: Lease, operation: Operation, sent: Sequence[Staged]) -> None:
    """The broker has them. What was settled meanwhile stays as it is. Raises LeaseLost."""
    if not sent:
        return
    with lease.fenced() as now:
        if operation.kind == Kind.REPLAY:
            _letters(lease, [each.letter_id for each in sent]).finish_replay(operation.pk, now=now)
        _items(lease).filter(pk__in=[each.item_id for each in sent], state=ItemState.STAGED).update(
            state=ItemState.SENT, sent_at=now
        )


@patient
def give_back(lease: Lease, operation: Operation, unsent: Sequence[Staged], error: str) -> None:
    """The broker took nothing: the letters are open, and the items wait, as before; of an operation that was
    cancelled meanwhile they end. Raises LeaseLost."""
    if not unsent:
        return
    with lease.fenced() as now:
        _reopen(lease, operation, unsent, error)
        items = _items(lease).filter(pk__in=[each.item_id for each in unsent], state=ItemState.STAGED)
        row = Operation.objects.using(lease.alias).filter(pk=operation.pk)
        if row.filter(state=OperationState.CANCELLED).exists():
            _end(items, ItemVerdict.CANCELLED, now, error=error)
            return
        changed = items.update(state=ItemState.WAITING, error=error)
        row.filter(step_sent__gte=changed).update(step_sent=F("step_sent") - changed)


@patient
def not_sendable(
    lease: Lease, operation: Operation, unsent: Iterable[tuple[Staged, str]], verdict: ItemVerdict
) -> None:
    """These cannot be sent, whoever tries: their letters are open, with the error. Raises LeaseLost."""
    by_error: dict[str, list[Staged]] = {}
    for each, error in unsent:
        by_error.setdefault(error, []).append(each)
    if not by_error:
        return
    with lease.fenced() as now:
        for error, these in by_error.items():
            _reopen(lease, operation, these, error)
            _end(
                _items(lease).filter(pk__in=[each.item_id for each in these], state=ItemState.STAGED),
                verdict,
                now,
                error=error,
            )


def _named(lease: Lease, rows: Sequence[Any]) -> list[Any]:
    """Those of copies, with the identity that each has from now on: the same, whoever stages it."""
    named = [
        (pk, letter_id, copy_task_id(lease.operation_id, letter_id), *message)
        for pk, letter_id, _, *message in rows
    ]
    _items(lease).bulk_update(
        [OperationItem(pk=row[0], task_id=row[2], delivery_key=row[2]) for row in named],
        ["task_id", "delivery_key"],
    )
    return named


def _leave_alone(lease: Lease, operation: Operation, rows: Sequence[Any], now: datetime) -> None:
    if not rows:
        return
    found = DeadLetter.objects.using(lease.alias).defer("sealed").in_bulk([row[1] for row in rows])
    over_limit = bool(operation.source.get("over_limit"))
    by_verdict: dict[ItemVerdict, list[int]] = {}
    for row in rows:
        verdict = standing_of(found.get(row[1]), kind=Kind(operation.kind), over_limit=over_limit)
        # It was claimed when we asked, and is free again: it had its turn.
        by_verdict.setdefault(verdict or ItemVerdict.CLAIMED, []).append(row[0])
    for verdict, ids in by_verdict.items():
        _end(_items(lease).filter(pk__in=ids, state=ItemState.WAITING), verdict, now)


def _end(items: Any, verdict: ItemVerdict, now: datetime, *, error: str = "") -> None:
    items.update(state=ItemState.NOT_SENT, verdict=verdict, settled_at=now, error=error)


def _reopen(lease: Lease, operation: Operation, unsent: Sequence[Staged], error: str) -> None:
    if operation.kind == Kind.REPLAY:
        _letters(lease, [each.letter_id for each in unsent]).give_back(operation.pk, error=error)


def _claimable(lease: Lease, letter_ids: Sequence[UUID], operation: Operation) -> DeadLetterQuerySet:
    letters = _letters(lease, letter_ids)
    if operation.source.get("over_limit"):
        return letters
    return letters.filter(replay_number__lt=dlq_settings().replay_limit)


def _stored(lease: Lease, letter_ids: Sequence[UUID], kind: Kind) -> dict[UUID, tuple[Any, str]]:
    """The messages of those letters that the operation may send."""
    letters = _letters(lease, letter_ids)
    if kind is Kind.REPLAY:
        letters = letters.replaying().claimed_with(lease.operation_id)
    return {
        pk: (sealed, method)
        for pk, sealed, method in letters.order_by().values_list("pk", "sealed", "sealed_with")
    }


def _staged(row: Any, stored: dict[UUID, tuple[Any, str]]) -> Staged:
    item_id, letter_id, task_id, sealed, sealed_with = row
    if sealed is None:
        sealed, sealed_with = stored[letter_id]
    return Staged(
        item_id=item_id, letter_id=letter_id, task_id=task_id, sealed=sealed, sealed_with=sealed_with
    )


def _items(lease: Lease) -> Any:
    return OperationItem.objects.using(lease.alias).filter(operation_id=lease.operation_id)


def _letters(lease: Lease, letter_ids: Sequence[UUID]) -> DeadLetterQuerySet:
    letters: DeadLetterQuerySet = DeadLetter.objects.using(lease.alias).filter(pk__in=list(letter_ids))
    return letters
