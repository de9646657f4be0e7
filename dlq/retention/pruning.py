"""Does what DLQ["RETENTION"] says, a batch at a time: gives up, deletes, and forgets what was about them.

Each batch is one transaction of at most BATCH letters, so that nobody waits long for it, and dying between
two leaves nothing half done. Which letters are old is asked without a lock and by an index; the writes ask
again.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from ..ages import age_text
from ..conf import database_alias, dlq_settings
from ..discard import discard
from ..groups.forgetting import forget_old_figures
from ..groups.turns import one_at_a_time
from ..models import DeadLetter, DeadLetterQuerySet, Operation, OperationEvent, OperationItem
from ..operations.progress import progress_of
from ..operations.states import OperationState
from ..purging import delete_letters, purgeable
from ..states import State
from .rules import RetentionRules

__all__ = ["BATCH", "BY", "ITEMS_DROPPED", "Pruned", "due", "prune"]

BATCH = 500
BY = "retention"
ITEMS_DROPPED = "items_dropped"
"""The event of an operation whose items are gone: it holds what became of them."""
_TURN = "dlq.retention"
_log = logging.getLogger(__name__)

Step = tuple[str, Callable[[int], int]]
"""What it counts as, and one batch of it: takes the most that it may do, returns how much it did."""


@dataclass(slots=True, kw_only=True)
class Pruned:
    """What was done. `more`: there was no time for all of it."""

    discarded: int = 0
    replayed_purged: int = 0
    discarded_purged: int = 0
    items: int = 0
    figures: int = 0
    more: bool = False
    busy: bool = field(default=False)
    """Somebody else prunes at the same time."""

    @property
    def rows(self) -> int:
        """How much there was to do."""
        return self.discarded + self.replayed_purged + self.discarded_purged + self.items + self.figures

    def add(self, later: Pruned) -> None:
        """What was done after it."""
        self.discarded += later.discarded
        self.replayed_purged += later.replayed_purged
        self.discarded_purged += later.discarded_purged
        self.items += later.items
        self.figures += later.figures
        self.more, self.busy = later.more, later.busy


def prune(
    seconds: float, *, batch: int = BATCH, on_batch: Callable[[Pruned], object] = lambda _done: None
) -> Pruned:
    """Do what is due, for about `seconds`. Raises what the database raises; what was done by then is done."""
    rules = dlq_settings().retention_rules
    deadline = time.monotonic() + seconds
    done = Pruned()
    if not rules.any:
        return done
    for name, step in _steps(rules, database_alias()):
        while True:
            if done.rows and time.monotonic() >= deadline:
                done.more = True
                return done
            did = step(batch)
            if did < 0:
                done.busy = done.more = True
                return done
            setattr(done, name, getattr(done, name) + did)
            if did:
                on_batch(done)
            if did < batch:
                break
    return done


def due(rules: RetentionRules | None = None) -> dict[str, int]:
    """How much would be done now, without doing it. What is discarded now is not deleted at once."""
    rules = rules or dlq_settings().retention_rules
    alias, now = database_alias(), timezone.now()
    found: dict[str, int] = {}
    if rules.open_after:
        found["discarded"] = _old_open(rules.open_after, now, alias).count()
    for state, age in _closed_ages(rules):
        found[f"{state}_purged"] = _old_closed(state, age, now, alias).count()
    if rules.operations:
        old = _old_operations(rules.operations, now, alias)
        items = OperationItem.objects.using(alias).filter(operation_id__in=old.values("pk"))
        found["items"] = items.count()
    return found


def _steps(rules: RetentionRules, alias: str) -> Iterator[Step]:
    now = timezone.now()
    if rules.open_after:
        old = _old_open(rules.open_after, now, alias)
        text = rules.open_reason
        age = rules.open_after
        yield "discarded", lambda most: _give_up(old, age, text, most, alias)
    for state, closed_age in _closed_ages(rules):
        yield f"{state}_purged", _deleting(_old_closed(state, closed_age, now, alias), alias)
    if rules.operations:
        operations = _old_operations(rules.operations, now, alias)
        yield "items", lambda most: _drop_items(operations, most, alias)
    yield "figures", lambda most: min(forget_old_figures(most, alias=alias), most - 1)


def _closed_ages(rules: RetentionRules) -> Iterator[tuple[State, timedelta]]:
    if rules.replayed:
        yield State.REPLAYED, rules.replayed
    if rules.discarded:
        yield State.DISCARDED, rules.discarded


def _old_open(age: timedelta, now: datetime, alias: str) -> DeadLetterQuerySet:
    # By the failure, which has the index; and not while the same failure is still handed in.
    letters: DeadLetterQuerySet = DeadLetter.objects.using(alias).filter(
        state=State.OPEN, failed_at__lt=now - age, last_captured_at__lt=now - age
    )
    return letters.order_by("failed_at")


def _old_closed(state: State, age: timedelta, now: datetime, alias: str) -> DeadLetterQuerySet:
    letters: DeadLetterQuerySet = DeadLetter.objects.using(alias).filter(state=state, closed_at__lt=now - age)
    return purgeable(letters).order_by("closed_at")


def _old_operations(age: timedelta, now: datetime, alias: str) -> QuerySet[Operation]:
    items = OperationItem.objects.using(alias).filter(operation_id=OuterRef("pk"))
    return (
        Operation.objects.using(alias)
        .filter(Exists(items), state=OperationState.CLOSED, closed_at__lt=now - age)
        .order_by("closed_at")
    )


def _give_up(old: DeadLetterQuerySet, age: timedelta, reason: str, most: int, alias: str) -> int:
    ids = list(old.values_list("pk", flat=True)[:most])
    if not ids:
        return 0
    with one_at_a_time(_TURN, alias=alias) as mine:
        if not mine:
            return -1
        given_up = discard(ids, by=BY, reason=reason).discarded
    if given_up:
        tasks = Counter(
            DeadLetter.objects.using(alias).filter(pk__in=given_up).values_list("task_name", flat=True)
        )
        _log.warning(
            '%d open letters were older than %s and were discarded, as DLQ["RETENTION"] says: %s (%s)',
            len(given_up),
            age_text(age),
            reason,
            ", ".join(f"{task} {count}" for task, count in tasks.most_common(5)),
            extra={"letters": len(given_up)},
        )
    return len(given_up)


def _deleting(old: DeadLetterQuerySet, alias: str) -> Callable[[int], int]:
    def delete(most: int) -> int:
        ids: list[UUID] = list(old.values_list("pk", flat=True)[:most])
        if not ids:
            return 0
        with one_at_a_time(_TURN, alias=alias) as mine:
            return len(delete_letters(ids, alias=alias)) if mine else -1

    return delete


def _drop_items(operations: QuerySet[Operation], most: int, alias: str) -> int:
    """Up to `most`, of the oldest of them; its figures are kept in its trail, before the first goes."""
    dropped = 0
    while dropped < most and (pk := operations.values_list("pk", flat=True).first()):
        items = OperationItem.objects.using(alias).filter(operation_id=pk)
        with one_at_a_time(_TURN, alias=alias) as mine:
            if not mine:
                return -1
            _keep_figures(pk, alias)
            ids = list(items.order_by().values_list("pk", flat=True)[: most - dropped])
            items.filter(pk__in=ids)._raw_delete(alias)
        dropped += len(ids)
    return dropped


def _keep_figures(pk: UUID, alias: str) -> None:
    events = OperationEvent.objects.using(alias).filter(operation_id=pk, what=ITEMS_DROPPED)
    figures = progress_of([pk]).get(pk)
    if figures is None or events.exists():
        return
    OperationEvent.objects.using(alias).bulk_create(
        [
            OperationEvent(
                operation_id=pk, at=timezone.now(), by=BY, what=ITEMS_DROPPED, detail=figures.as_dict()
            )
        ]
    )
