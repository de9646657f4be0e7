"""The items of an operation, a page at a time: found by their position, so that no page reads the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.functional import Promise

from dlq.access import VIEW, items_for, letters_for
from dlq.conf import database_alias
from dlq.models import DeadLetter, Operation, OperationItem
from dlq.operations.states import ItemState

from .operation_words import verdict_label
from .permissions import may_see_letters

__all__ = ["PAGE", "ItemLine", "ItemPage", "LetterLink", "group_address", "item_page", "letter_links"]

PAGE = 50
_COLUMNS = (
    *("pk", "position", "letter_id", "state", "verdict", "error", "task_id"),
    *("sent_at", "settled_at", "new_letter_id", "same_cause"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterLink:
    """A letter, as far as the user may see it. `address` empty: not at all, or it exists no more."""

    text: str
    address: str = ""
    task_name: str = ""
    state: str | Promise = ""
    group_address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemLine:
    """One item with its letter, and the letter as which it came back."""

    item: OperationItem
    verdict: str | Promise
    letter: LetterLink
    new_letter: LetterLink | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPage:
    """`before` and `after`: positions where the pages beside this one begin; None: there is none."""

    lines: tuple[ItemLine, ...]
    state: str
    before: int | None
    after: int | None


def item_page(request: HttpRequest, operation: Operation, site: str) -> ItemPage:
    """What the address asks for by `items` (a state) and `from` (a position). Five queries at most."""
    state = request.GET.get("items", "")
    if state not in set(ItemState):
        state = ""
    begin = _position(request.GET.get("from"))
    items = OperationItem.objects.using(database_alias()).filter(operation_id=operation.pk)
    items = items_for(request.user, VIEW, items)
    if state:
        items = items.filter(state=state)
    rows = list(items.filter(position__gte=begin).order_by("position").only(*_COLUMNS)[: PAGE + 1])
    before = None
    if begin:
        earlier = items.filter(position__lt=begin).order_by("-position")
        positions = list(earlier.values_list("position", flat=True)[:PAGE])
        before = positions[-1] if positions else None
    shown = rows[:PAGE]
    wanted = {row.letter_id for row in shown} | {row.new_letter_id for row in shown if row.new_letter_id}
    links = letter_links(request, wanted, site=site)
    return ItemPage(
        lines=tuple(
            ItemLine(
                item=row,
                verdict=verdict_label(row.verdict),
                letter=links[row.letter_id],
                new_letter=links[row.new_letter_id] if row.new_letter_id else None,
            )
            for row in shown
        ),
        state=state,
        before=before,
        after=rows[PAGE].position if len(rows) > PAGE else None,
    )


def letter_links(request: HttpRequest, ids: set[UUID], *, site: str) -> Mapping[UUID, LetterLink]:
    """For each id; in one query. Letters that were purged, or may not be seen, are ids without an address."""
    found: dict[UUID, LetterLink] = {pk: LetterLink(text=str(pk)) for pk in ids}
    if not ids or not may_see_letters(request):
        return found
    columns = ("pk", "task_id", "task_name", "state", "group_id")
    labels = dict(DeadLetter._meta.get_field("state").flatchoices)
    letters = letters_for(request.user, VIEW).filter(pk__in=ids).order_by()
    for row in letters.values(*columns):
        found[row["pk"]] = LetterLink(
            text=row["task_id"],
            address=reverse("admin:dlq_deadletter_change", args=[row["pk"]], current_app=site),
            task_name=row["task_name"],
            state=labels.get(row["state"], row["state"]),
            group_address=group_address(row["group_id"], site),
        )
    return found


def group_address(fingerprint: str | None, site: str) -> str:
    """Of a group's page; empty where a site has none."""
    if not fingerprint:
        return ""
    try:
        return reverse("admin:dlq_lettergroup_change", args=[quote(fingerprint)], current_app=site)
    except NoReverseMatch:
        return ""


def _position(given: Any) -> int:
    text = str(given or "0")
    return min(int(text), 2**31 - 1) if text.isascii() and text.isdecimal() and len(text) < 12 else 0
