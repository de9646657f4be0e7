"""Deletes dead letters for good: closed ones only, in bounded batches, and only as many as were agreed on.

What belongs to a letter goes with it: its attempts and its message. Counts of its group, the item of an
operation that replayed it, and the letter that followed it stay; they name an id that is no more.

A letter whose replay was sent and has no known outcome is left alone: its message is needed to ask for it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from .conf import database_alias
from .errors import WrongCount
from .lookup import letters_of, states_of, unique_ids
from .models import Attempt, DeadLetter, DeadLetterQuerySet, LetterGroup, OperationItem
from .operations.states import ItemState

__all__ = ["AWAITED", "PurgeOutcome", "delete_letters", "purge", "purgeable", "to_be_purged"]

AWAITED = "awaited"
"""Left alone: closed, but the outcome of its replay is not known yet."""

BATCH = 500
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeOutcome:
    """`skipped` counts by state, "missing" for ids without a letter, and AWAITED."""

    purged: int
    skipped: Mapping[str, int]

    def as_dict(self) -> dict[str, object]:
        """Plain form for --json."""
        return {"purged": self.purged, "skipped": dict(self.skipped)}


def purgeable(letters: DeadLetterQuerySet) -> DeadLetterQuerySet:
    """Those of these letters that may be deleted."""
    awaited = OperationItem.objects.using(letters.db).filter(
        letter_id=OuterRef("pk"), state__in=(ItemState.STAGED, ItemState.SENT)
    )
    return letters.closed().filter(~Exists(awaited))


def to_be_purged(letters: DeadLetterQuerySet | Iterable[UUID | str]) -> int:
    """How many `purge` would delete now: what its caller must confirm."""
    if isinstance(letters, DeadLetterQuerySet):
        return int(purgeable(letters).order_by().count())
    return sum(purgeable(letters_of(chunk)).count() for chunk in _chunks(letters))


def purge(
    letters: DeadLetterQuerySet | Iterable[UUID | str],
    *,
    by: str,
    confirm_count: int,
    on_batch: Callable[[int], object] = lambda _purged: None,
) -> PurgeOutcome:
    """Delete these letters, as far as they are closed. There is no way back.

    Raises WrongCount, and deletes nothing, unless `confirm_count` is how many there are. What is closed
    later than that is not touched, and what is restored meanwhile stays. `on_batch` is told how many are
    gone.
    """
    if not isinstance(letters, DeadLetterQuerySet):
        letters = list(unique_ids(letters))
    else:
        letters = letters.filter(closed_at__lte=timezone.now())
    expected = to_be_purged(letters)
    if expected != confirm_count:
        raise WrongCount(expected)
    alias = database_alias()
    purged = 0
    skipped: Counter[str] = Counter()
    if isinstance(letters, DeadLetterQuerySet):
        oldest = purgeable(letters).order_by("closed_at").values_list("pk", flat=True)
        while purged < expected and (batch := list(oldest[: min(BATCH, expected - purged)])):
            purged += len(delete_letters(batch, alias=alias))
            on_batch(purged)
    else:
        for chunk in _chunks(letters):
            gone = delete_letters(
                list(purgeable(letters_of(chunk)).values_list("pk", flat=True)), alias=alias
            )
            purged += len(gone)
            skipped += _why_left(set(chunk) - set(gone))
            on_batch(purged)
    _log.warning("%d dead letters were purged", purged, extra={"letters": purged, "by": by})
    return PurgeOutcome(purged=purged, skipped=dict(skipped))


def delete_letters(ids: Sequence[UUID], *, alias: str) -> list[UUID]:
    """Delete those of these that are closed still, in one transaction; returns which.

    Without signals: no receiver of the project's takes part.
    """
    if not ids:
        return []
    token = uuid4()
    mine = DeadLetter.objects.using(alias).filter(pk__in=list(ids)).closed()
    with transaction.atomic(using=alias):
        # A write first: it locks them against whoever restores one, and SQLite makes no writer of a reader.
        mine.update(claim_token=token)
        gone = list(mine.claimed_with(token).order_by().values_list("pk", flat=True))
        OperationItem.objects.using(alias).filter(new_letter_id__in=gone).update(new_letter_id=None)
        LetterGroup.objects.using(alias).filter(sample_id__in=gone).update(sample_id=None)
        _delete(Attempt.objects.using(alias).filter(letter_id__in=gone))
        _delete(DeadLetter.objects.using(alias).filter(pk__in=gone))
    return gone


def _delete(rows: QuerySet[Attempt] | DeadLetterQuerySet) -> None:
    rows._raw_delete(rows.db)


def _why_left(ids: set[UUID]) -> Counter[str]:
    awaited = letters_of(ids).closed().count() if ids else 0
    states = states_of(ids)
    for state in ("replayed", "discarded"):
        states.pop(state, None)
    return states + Counter({AWAITED: awaited})


def _chunks(letter_ids: Iterable[UUID | str]) -> Iterator[list[UUID]]:
    ids = unique_ids(letter_ids)
    while chunk := list(islice(ids, BATCH)):
        yield chunk
