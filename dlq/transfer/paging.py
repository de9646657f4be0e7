"""Letters a page at a time: constant memory on every database, and no transaction that stays open.

A cursor of the server would need a transaction for as long as somebody downloads, behind a pooler it is not
to be had, and MariaDB's driver reads all rows before the first. So each page begins where the last one
ended, by an index.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter

from django.db.models import Q

from ..models import Attempt, DeadLetter, DeadLetterQuerySet

__all__ = ["PAGE", "letters_with_attempts", "paged"]

PAGE = 500


def paged(letters: DeadLetterQuerySet, *, most: int | None = None) -> Iterator[list[DeadLetter]]:
    """Pages of at most PAGE, oldest first. No letter twice; what is stored meanwhile may be among them."""
    ordered = letters.order_by("failed_at", "pk")
    left = most
    page: list[DeadLetter] = []
    while left is None or left > 0:
        following = ordered
        if page:
            last = page[-1]
            after = Q(failed_at__gt=last.failed_at) | Q(pk__gt=last.pk)
            following = ordered.filter(after, failed_at__gte=last.failed_at)
        page = list(following[: PAGE if left is None else min(PAGE, left)])
        if not page:
            return
        yield page
        if left is not None:
            left -= len(page)


def letters_with_attempts(
    letters: DeadLetterQuerySet, *, most: int | None = None
) -> Iterator[tuple[DeadLetter, list[Attempt]]]:
    """Each letter with its attempts, oldest first."""
    for page in paged(letters, most=most):
        rows = Attempt.objects.using(letters.db).filter(letter_id__in=[each.pk for each in page])
        ordered = rows.order_by("letter_id", "number")
        of_letter = {pk: list(group) for pk, group in groupby(ordered, attrgetter("letter_id"))}
        for letter in page:
            yield letter, of_letter.get(letter.pk, [])
