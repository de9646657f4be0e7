"""What the page of an operation shows. Reads only, by a number of queries that letters do not raise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from dlq.access import VIEW, letters_for
from dlq.conf import database_alias
from dlq.models import Operation, OperationEvent
from dlq.operations.canvas import Note, canvas_of_row
from dlq.operations.chord_sending import is_chord
from dlq.operations.examine import BLOCKING, ItemVerdict, examination_of
from dlq.operations.making import since
from dlq.operations.progress import Progress, progress
from dlq.operations.states import ItemState, Kind, OperationState

from .operation_controls import CONTROLS, offered
from .operation_items import group_address, item_page
from .operation_words import deed_of, event_line, pace_in_words, source_in_words, standing, verdict_label
from .permissions import is_own, may_control, may_see_payload
from .replaying import address_of_operation

if TYPE_CHECKING:
    from .operation_admin import OperationAdmin

__all__ = ["LIVE_SECONDS", "operation_context"]

LIVE_SECONDS = 5
_MOST_EVENTS = 100
_CANVAS_SEEN = 100  # Each is a row of letters to be fetched: 500 are as slow as counting 100,000 items.
_MOST_NOTES = 10
_MOST_SINCE = 10_000
_UNTOUCHED_AFTER = timedelta(seconds=60)
_BEFORE_START = (OperationState.PLANNED, OperationState.AWAITING_APPROVAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the progress: its count, what it means, and where it is in the bar (of 1000)."""

    name: str
    label: str | Promise
    meaning: str | Promise
    count: int
    begin: float = 0.0
    width: float = 0.0
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A line of the dry run."""

    label: str | Promise
    count: int
    is_blocking: bool
    is_fine: bool


def operation_context(
    model_admin: OperationAdmin, request: HttpRequest, operation: Operation
) -> dict[str, Any]:
    """For the template."""
    site = model_admin.admin_site.name
    how_far = progress(operation)
    examined = examination_of(how_far.verdicts, total=operation.total)
    ended = operation.state == OperationState.CLOSED
    newer = None if ended else since(operation, most=_MOST_SINCE + 1)
    seen_live = request.GET.get("live") == "1" and not ended
    source = operation.source if isinstance(operation.source, Mapping) else {}
    events = OperationEvent.objects.using(database_alias()).filter(operation_id=operation.pk)
    newest = list(events.order_by("-at", "-id")[: _MOST_EVENTS + 1])
    examining = CONTROLS["examine"]
    return {
        "operation": operation,
        "standing": standing(operation, how_far),
        "deed": deed_of(operation),
        "source": source_in_words(source),
        "source_group_address": group_address(str(source.get("fingerprint") or ""), site),
        "since": None if newer is None else min(newer, _MOST_SINCE),
        "since_is_more": newer is not None and newer > _MOST_SINCE,
        "changes": _changes(request, source),
        "pace": pace_in_words(operation),
        "never_pauses": operation.pause_above_percent == 100,
        "progress": how_far,
        "parts": _parts(how_far),
        "not_sent_because": [
            (verdict_label(verdict), count) for verdict, count in sorted(how_far.not_sent_because.items())
        ],
        "verdicts": _verdicts(examined.counts),
        "examined": examined,
        "notes": _notes(request, operation),
        "notes_of": min(operation.total, _CANVAS_SEEN),
        "controls": offered(request, operation, site),
        "examine_address": (
            address_of_operation(operation, site, "examine")
            if operation.state in examining.states and may_control(request, operation)
            else ""
        ),
        "before_start": operation.state in _BEFORE_START,
        "waits_for_other": operation.state == OperationState.AWAITING_APPROVAL and is_own(request, operation),
        "untouched": _is_untouched(operation, how_far),
        "page": item_page(request, operation, site),
        "item_states": [(state.value, label) for state, label in _ITEM_LABELS.items()],
        "events": [event_line(event) for event in newest[:_MOST_EVENTS]],
        "more_events": len(newest) > _MOST_EVENTS,
        "live": seen_live,
        "live_seconds": LIVE_SECONDS,
        "can_be_live": not ended,
        "history_address": reverse("admin:dlq_operation_history", args=[operation.pk], current_app=site),
    }


_ITEM_LABELS: Mapping[ItemState, str | Promise] = {
    ItemState.WAITING: _("waiting"),
    ItemState.STAGED: _("being sent"),
    ItemState.SENT: _("running"),
    ItemState.SUCCEEDED: _("succeeded"),
    ItemState.CAME_BACK: _("came back"),
    ItemState.LOST: _("lost"),
    ItemState.NOT_SENT: _("not sent"),
}


def _parts(how_far: Progress) -> list[Part]:
    other = how_far.came_back - how_far.same_cause
    rows: list[tuple[str, str | Promise, str | Promise, int, ItemState]] = [
        ("succeeded", _("succeeded"), _("It did its work."), how_far.succeeded, ItemState.SUCCEEDED),
        (
            "same",
            _("came back, same cause"),
            _("It failed again as before."),
            how_far.same_cause,
            ItemState.CAME_BACK,
        ),
        ("other", _("came back, another cause"), _("It failed otherwise now."), other, ItemState.CAME_BACK),
        ("lost", _("lost"), _("Nothing was heard of it for too long."), how_far.lost, ItemState.LOST),
        (
            "notsent",
            _("not sent"),
            _("Left alone; its letter is as it was."),
            how_far.not_sent,
            ItemState.NOT_SENT,
        ),
        ("sent", _("running"), _("Sent; it waits or runs."), how_far.sent, ItemState.SENT),
        (
            "staged",
            _("being sent"),
            _("Claimed; its message is on its way to the broker."),
            how_far.staged,
            ItemState.STAGED,
        ),
        ("waiting", _("waiting"), _("Its turn has not come."), how_far.waiting, ItemState.WAITING),
    ]
    parts = []
    begin = 0.0
    for name, label, meaning, count, state in rows:
        width = 1000 * count / how_far.total if how_far.total else 0.0
        parts.append(
            Part(
                name=name,
                label=label,
                meaning=meaning,
                count=count,
                begin=round(begin, 1),
                width=round(width, 1),
                state=state.value,
            )
        )
        begin += width
    return parts


def _verdicts(counts: Mapping[str, int]) -> list[Verdict]:
    """In the order of the enumeration: what fits, what warns, what blocks."""
    order = [verdict.value for verdict in ItemVerdict]
    known = sorted(counts, key=lambda verdict: order.index(verdict) if verdict in order else len(order))
    return [
        Verdict(
            label=verdict_label(verdict),
            count=counts[verdict],
            is_blocking=verdict in BLOCKING,
            is_fine=verdict == ItemVerdict.FITS,
        )
        for verdict in known
    ]


def _notes(request: HttpRequest, operation: Operation) -> list[tuple[int, Note]]:
    """What goes on and what does not, of the first letters, each text with the number of its letters."""
    letters = letters_for(request.user, VIEW).filter(
        items__operation_id=operation.pk, items__position__lt=_CANVAS_SEEN
    )
    counts: Counter[tuple[str, str]] = Counter()
    notes: dict[tuple[str, str], Note] = {}
    for canvas in letters.order_by().values_list("canvas", flat=True):
        for note in canvas_of_row(canvas, Kind(operation.kind), whole_chord=is_chord(operation)):
            key = (note.topic, str(note.text))
            counts[key] += 1
            notes[key] = note
    return [(count, notes[key]) for key, count in counts.most_common(_MOST_NOTES)]


def _changes(request: HttpRequest, source: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """They are arguments: only for who may see those of the letter."""
    found = source.get("changes")
    if not found or not may_see_payload(request):
        return []
    letter = str(source.get("letter"))
    if not letters_for(request.user, VIEW).filter(pk=letter).exists():
        return []
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _is_untouched(operation: Operation, how_far: Progress) -> bool:
    """Whether it runs and nobody has taken it up."""
    now = timezone.now()
    return (
        operation.state == OperationState.RUNNING
        and how_far.waiting == how_far.total > 0
        and operation.started_at is not None
        and operation.started_at < now - _UNTOUCHED_AFTER
        and (operation.runner_until is None or operation.runner_until < now)
    )
