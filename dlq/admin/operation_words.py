"""Operations in words: what one was made from, how fast it goes, where it stands, what was done to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from dlq.models import Operation, OperationEvent
from dlq.operations.examine import LABELS
from dlq.operations.pace import Ramp, Rate, Share, pace_of
from dlq.operations.progress import Progress
from dlq.operations.states import Kind, OperationState, PausedBecause

__all__ = [
    "EventLine",
    "deed_of",
    "event_line",
    "pace_in_words",
    "source_in_words",
    "standing",
    "verdict_label",
]

_MOST_VALUE = 200

_PAUSED: Mapping[str, str | Promise] = {
    PausedBecause.PERSON: _("somebody paused it"),
    PausedBecause.FAILURES: _("more of what was sent failed again than it allows"),
    PausedBecause.SAME_CAUSE: _("what was sent came back with the same cause"),
    PausedBecause.BROKER: _("the broker took nothing, again and again"),
}

_EVENTS: Mapping[str, str | Promise] = {
    "made": _("made"),
    "approval asked": _("approval asked for"),
    "approved": _("approved and started"),
    "started": _("started"),
    "paused": _("paused"),
    "resumed": _("resumed"),
    "cancelled": _("cancelled"),
    "all sent": _("all sent"),
    "closed": _("closed: every outcome is known"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """One line of the audit trail."""

    at: datetime
    by: str
    what: str | Promise
    detail: str


def verdict_label(verdict: str) -> str | Promise:
    """For people; what is not known is shown as it is."""
    return LABELS.get(verdict, verdict)


def deed_of(operation: Operation) -> str:
    """What it does, once it runs."""
    if operation.kind == Kind.COPY:
        text = ngettext(
            "Sends a copy of %(count)d letter, as new work with a key of its own. The letter stays as it is.",
            "Sends copies of %(count)d letters, as new work with keys of their own. The letters stay "
            "as they are.",
            operation.total,
        )
    else:
        text = ngettext(
            "Sends %(count)d letter again, as the same work under the same key.",
            "Sends %(count)d letters again, as the same work under the same keys.",
            operation.total,
        )
    return text % {"count": operation.total}


def source_in_words(source: Mapping[str, Any]) -> str:
    """What its letters were chosen by."""
    match source.get("kind"):
        case "filter":
            lookups = source.get("lookups") or {}
            if not lookups:
                return gettext("all letters")
            return gettext("a filter: %(filter)s") % {"filter": _pairs(lookups)}
        case "group":
            return gettext("a group of letters")
        case "release":
            return gettext("a group that was resolved in release %(release)s") % {
                "release": _short(source.get("release"))
            }
        case "edit":
            return gettext("a letter whose arguments were edited")
        case "chord":
            return gettext(
                "a chord of %(members)s members that failed; %(succeeded)s of them had succeeded"
            ) % {
                "members": _short(source.get("members")),
                "succeeded": _short(source.get("succeeded")),
            }
        case "selection" if source.get("address"):
            return gettext("what was found by: %(filter)s") % {"filter": _pairs(source["address"])}
        case "selection":
            return gettext("a selection")
    return _short(source.get("kind"))


def pace_in_words(operation: Operation) -> str:
    """How fast it sends."""
    try:
        pace = pace_of(operation.pace)
    except ValueError:
        return _short(operation.pace)
    match pace:
        case Ramp(steps=steps):
            return gettext("a ramp of %(steps)s; each step waits for its outcomes") % {
                "steps": ", ".join(map(str, steps))
            }
        case Rate(per_second=rate):
            return gettext("%(rate)s a second, shared with all who send to the same queue") % {
                "rate": f"{rate:g}"
            }
        case Share(percent=percent):
            return gettext("%(percent)s %% of what the workers of the queue get done") % {
                "percent": f"{percent:g}"
            }
    return gettext("all at once")


def standing(operation: Operation, how_far: Progress) -> str:
    """Where it stands, in a sentence."""
    match operation.state:
        case OperationState.PLANNED:
            return gettext("Planned. Nothing has moved yet.")
        case OperationState.AWAITING_APPROVAL:
            return gettext("Waits until somebody else than %(name)s approves it. Nothing has moved yet.") % {
                "name": operation.created_by
            }
        case OperationState.RUNNING if how_far.waiting:
            return gettext("Running: %(count)d wait for their turn.") % {"count": how_far.waiting}
        case OperationState.RUNNING:
            return gettext("Running.")
        case OperationState.PAUSED:
            why = _PAUSED.get(operation.paused_because, operation.paused_because)
            return gettext("Paused, because %(why)s. Nothing more is sent until it is resumed.") % {
                "why": why
            }
        case OperationState.SETTLING:
            return gettext("All is sent. The outcomes of %(count)d are not known yet.") % {
                "count": how_far.outstanding
            }
        case OperationState.CANCELLED:
            return gettext("Cancelled. Nothing more is sent; what was sent is followed to its outcome.")
        case OperationState.CLOSED:
            return gettext("Closed: every outcome is known.")
    return operation.get_state_display()


def event_line(event: OperationEvent) -> EventLine:
    """What was done, by whom. Edited values are not repeated here."""
    what = _EVENTS.get(event.what, event.what)
    detail = event.detail if isinstance(event.detail, Mapping) else {}
    text = ""
    if event.what == "made":
        text = ngettext("%(count)d letter", "%(count)d letters", int(detail.get("letters") or 0)) % {
            "count": int(detail.get("letters") or 0)
        }
        text = "; ".join(part for part in (text, _short(detail.get("why") or "")) if part)
    elif event.what == "paused":
        because = str(detail.get("because", ""))
        parts = (str(_PAUSED.get(because, because)), _short(detail.get("detail") or ""))
        text = "; ".join(part for part in parts if part)
    elif detail:
        text = _pairs(detail)
    return EventLine(at=event.at, by=event.by, what=what, detail=text)


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{_short(name)} = {_short(value)}" for name, value in sorted(values.items()))


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _MOST_VALUE else f"{text[:_MOST_VALUE]}…"
