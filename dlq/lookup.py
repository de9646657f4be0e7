"""Letters by their ids, where DLQ["DATABASE"] says, and the count of those that an operation left alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from uuid import UUID

from .conf import database_alias
from .models import DeadLetter, DeadLetterQuerySet

__all__ = ["MISSING", "letters_of", "states_of", "unique_ids"]

MISSING = "missing"


def letters_of(ids: Iterable[UUID]) -> DeadLetterQuerySet:
    """Those of these ids that exist."""
    queryset: DeadLetterQuerySet = DeadLetter.objects.using(database_alias()).filter(pk__in=list(ids))
    return queryset


def states_of(ids: Iterable[UUID]) -> Counter[str]:
    """How many of these letters are in which state; "missing" for ids without a letter."""
    wanted = set(ids)
    if not wanted:
        return Counter()
    # Without the default order: it would become part of the grouping.
    found = Counter(letters_of(wanted).order_by().values_list("state", flat=True))
    return found + Counter({MISSING: len(wanted) - found.total()})


def unique_ids(letter_ids: Iterable[UUID | str]) -> Iterator[UUID]:
    """Each id once, in order. Raises ValueError for what is no id."""
    return iter(dict.fromkeys(each if isinstance(each, UUID) else UUID(each) for each in letter_ids))
