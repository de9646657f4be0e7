"""What operations did with a letter, and from which one it came back: both directions of its lineage."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import Promise

from dlq.conf import database_alias
from dlq.models import DeadLetter, OperationItem

from .operation_items import LetterLink, letter_links
from .operation_words import verdict_label
from .permissions import may_see
from .replaying import address_of_operation

__all__ = ["LetterItem", "items_of", "origins_of"]

_MOST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterItem:
    """`other`: the letter at the other end. `address` empty: the operation is not for this user."""

    item: OperationItem
    verdict: str | Promise
    address: str
    other: LetterLink | None


def items_of(request: HttpRequest, letter: DeadLetter, site: str) -> list[LetterItem]:
    """The newest operations that this letter was in, and as what it came back. Bounded."""
    items = OperationItem.objects.using(database_alias()).filter(letter_id=letter.pk)
    rows = list(_newest(items))
    links = letter_links(request, {row.new_letter_id for row in rows if row.new_letter_id}, site=site)
    return [
        _line(request, row, links[row.new_letter_id] if row.new_letter_id else None, site) for row in rows
    ]


def origins_of(request: HttpRequest, letter: DeadLetter, site: str) -> list[LetterItem]:
    """The operations whose message came back as this letter, and the letter that they sent. Bounded."""
    items = OperationItem.objects.using(database_alias()).filter(new_letter_id=letter.pk)
    rows = list(_newest(items))
    links = letter_links(request, {row.letter_id for row in rows}, site=site)
    return [_line(request, row, links[row.letter_id], site) for row in rows]


def _newest(items: QuerySet[OperationItem]) -> QuerySet[OperationItem]:
    return items.select_related("operation").defer("sealed").order_by("-operation__created_at")[:_MOST]


def _line(request: HttpRequest, row: OperationItem, other: LetterLink | None, site: str) -> LetterItem:
    operation = row.operation
    return LetterItem(
        item=row,
        verdict=verdict_label(row.verdict),
        address=address_of_operation(operation, site) if may_see(request, operation) else "",
        other=other,
    )
