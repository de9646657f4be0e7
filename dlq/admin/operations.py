"""Replay and discard as the admin knows them: permission, confirm page, one call, one log entry a letter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.functional import Promise
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from dlq.conf import dlq_settings
from dlq.discard import discard
from dlq.errors import UnknownQueue
from dlq.lookup import letters_of
from dlq.models import DeadLetter, DeadLetterQuerySet
from dlq.replay import replay
from dlq.text import clean

from .summary import summarise

if TYPE_CHECKING:
    from .letters import DeadLetterAdmin

__all__ = ["DISCARD", "MOST_AT_ONCE", "OPERATIONS", "REPLAY", "Operation", "confirm_or_perform"]

MOST_AT_ONCE = 5_000
_TEMPLATE = "admin/dlq/deadletter/confirm.html"
_MOST_ERRORS_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`run` gets ids and the request, tells the user, and returns the ids that it changed with a log text."""

    name: str
    permission: str
    title: str | Promise
    question: str | Promise
    button: str | Promise
    fits: Callable[[DeadLetterQuerySet], DeadLetterQuerySet]
    run: Callable[[DeadLetterAdmin, HttpRequest, list[UUID]], tuple[tuple[UUID, ...], str]]


def confirm_or_perform(
    model_admin: DeadLetterAdmin,
    request: HttpRequest,
    operation: Operation,
    letters: DeadLetterQuerySet,
    *,
    hidden: Iterable[tuple[str, str]] = (),
) -> TemplateResponse | None:
    """The confirm page, or, when that page was posted, the deed and None.

    Nothing changes unless the request is a POST of the confirm page by a user with the permission,
    and nothing that was stored after the page was shown is touched.
    """
    if not model_admin.may(request, operation):
        raise PermissionDenied
    if request.method != "POST" or request.POST.get("confirmed") != "yes":
        return _page(model_admin, request, operation, letters, hidden=hidden)
    seen_until = _moment(request.POST.get("as_of"))
    if seen_until is not None:
        letters = letters.filter(stored_at__lte=seen_until)
    # Counted among all, sent from the oldest on: a request must end, and what it leaves stays open.
    ids = list(letters.order_by("failed_at", "pk").values_list("pk", flat=True)[:MOST_AT_ONCE])
    try:
        changed, text = operation.run(model_admin, request, ids)
    except UnknownQueue as exc:
        return _page(model_admin, request, operation, letters, hidden=hidden, error=str(exc))
    if changed:
        LogEntry.objects.log_actions(
            user_id=cast("int", request.user.pk),  # The view let nobody else in.
            queryset=letters_of(changed).only("pk", "task_name", "task_id"),
            action_flag=CHANGE,
            change_message=text,
        )
    return None


def _page(
    model_admin: DeadLetterAdmin,
    request: HttpRequest,
    operation: Operation,
    letters: DeadLetterQuerySet,
    *,
    hidden: Iterable[tuple[str, str]],
    error: str = "",
) -> TemplateResponse:
    summary = summarise(letters, fits=operation.fits)
    context: dict[str, Any] = {
        **model_admin.admin_site.each_context(request),
        "title": operation.title,
        "subtitle": None,
        "opts": model_admin.opts,
        "media": model_admin.media,
        "operation": operation,
        "summary": summary,
        "error": error,
        "most_at_once": MOST_AT_ONCE,
        "too_many": summary.fitting > MOST_AT_ONCE,
        "hidden": [*hidden, ("confirmed", "yes"), ("as_of", timezone.now().isoformat())],
    }
    request.current_app = model_admin.admin_site.name
    return TemplateResponse(request, _TEMPLATE, context)


def _moment(text: str | None) -> datetime | None:
    try:
        return parse_datetime(text) if text else None
    except ValueError:
        return None


def _replay(
    model_admin: DeadLetterAdmin, request: HttpRequest, ids: list[UUID]
) -> tuple[tuple[UUID, ...], str]:
    queue = _typed(request, "queue") or None
    outcome = replay(ids, by=request.user.get_username(), queue=queue)
    if outcome.sent:
        count = len(outcome.sent)
        text = ngettext("%(count)d letter was sent again.", "%(count)d letters were sent again.", count)
        model_admin.message_user(request, text % {"count": count}, messages.SUCCESS)
    _tell_skipped(model_admin, request, outcome.skipped)
    if outcome.failed:
        count = len(outcome.failed)
        text = ngettext(
            "%(count)d letter could not be sent and is open again: %(errors)s",
            "%(count)d letters could not be sent and are open again: %(errors)s",
            count,
        )
        errors = "; ".join(sorted(set(outcome.failed.values()))[:_MOST_ERRORS_SHOWN])
        model_admin.message_user(request, text % {"count": count, "errors": errors}, messages.ERROR)
    if queue is None:
        return outcome.sent, gettext("Replayed.")
    return outcome.sent, gettext("Replayed to the queue %(queue)s.") % {"queue": queue}


def _discard(
    model_admin: DeadLetterAdmin, request: HttpRequest, ids: list[UUID]
) -> tuple[tuple[UUID, ...], str]:
    reason = _typed(request, "reason")
    outcome = discard(ids, by=request.user.get_username(), reason=reason)
    if outcome.discarded:
        count = len(outcome.discarded)
        text = ngettext("%(count)d letter was discarded.", "%(count)d letters were discarded.", count)
        model_admin.message_user(request, text % {"count": count}, messages.SUCCESS)
    _tell_skipped(model_admin, request, outcome.skipped)
    return outcome.discarded, gettext("Discarded: %(reason)s") % {
        "reason": reason or gettext("no reason given")
    }


def _typed(request: HttpRequest, name: str) -> str:
    # Cleaned before anything changes: what a database refuses must not be met halfway.
    return clean(request.POST.get(name, "").strip())


def _tell_skipped(model_admin: DeadLetterAdmin, request: HttpRequest, skipped: Mapping[str, int]) -> None:
    if not skipped:
        return
    labels = dict(DeadLetter._meta.get_field("state").flatchoices)
    states = ", ".join(f"{labels.get(state, state)}: {count}" for state, count in sorted(skipped.items()))
    count = sum(skipped.values())
    text = ngettext(
        "%(count)d letter was left alone because of its state (%(states)s).",
        "%(count)d letters were left alone because of their state (%(states)s).",
        count,
    )
    model_admin.message_user(request, text % {"count": count, "states": states}, messages.WARNING)


def _replayable(letters: DeadLetterQuerySet) -> DeadLetterQuerySet:
    stale_before = timezone.now() - timedelta(seconds=dlq_settings().stale_claim_seconds)
    return letters.replayable(stale_before=stale_before)


REPLAY = Operation(
    name="replay",
    permission="replay_deadletter",
    title=_("Replay dead letters"),
    question=_("Send these tasks again? Each gets a new task id and starts at its first attempt."),
    button=_("Replay"),
    fits=_replayable,
    run=_replay,
)
DISCARD = Operation(
    name="discard",
    permission="discard_deadletter",
    title=_("Discard dead letters"),
    question=_("Give these tasks up? The letters stay readable and can no longer be replayed."),
    button=_("Discard"),
    fits=DeadLetterQuerySet.open,
    run=_discard,
)
OPERATIONS: Mapping[str, Operation] = {operation.name: operation for operation in (REPLAY, DISCARD)}
