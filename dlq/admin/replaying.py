"""Replay and copy, as actions of the admin: each makes a planned operation, and nothing moves yet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION, LogEntry
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from dlq.conf import dlq_settings
from dlq.errors import UnknownQueue
from dlq.models import DeadLetterQuerySet, Operation
from dlq.operations.examine import examine
from dlq.operations.making import make_operation
from dlq.operations.states import Kind

from .actions import Action, Confirmed, Refused
from .permissions import name_of
from .replay_form import ReplayForm

if TYPE_CHECKING:
    from .letters import DeadLetterAdmin

__all__ = ["COPY", "EXAMINE_SECONDS", "REPLAY", "address_of_operation", "log_operation"]

EXAMINE_SECONDS = 2.0
"""So long one request examines; asking the workers takes a second more."""


def address_of_operation(operation: Operation, site: str, view: str = "change") -> str:
    """Of its page, or of one of its controls."""
    return reverse(f"admin:dlq_operation_{view}", args=[operation.pk], current_app=site)


def log_operation(request: HttpRequest, operation: Operation, flag: int, text: str) -> None:
    """One entry in the history of the operation."""
    LogEntry.objects.log_actions(
        user_id=cast("int", request.user.pk),  # The view let nobody else in.
        queryset=[operation],
        action_flag=flag,
        change_message=text,
        single_object=True,
    )


def _form(data: QueryDict | None) -> forms.Form:
    return ReplayForm(data)


def _making(kind: Kind) -> Callable[[DeadLetterAdmin, HttpRequest, Confirmed], HttpResponse]:
    def run(model_admin: DeadLetterAdmin, request: HttpRequest, confirmed: Confirmed) -> HttpResponse:
        data = confirmed.data
        fits = REPLAY.fits if kind is Kind.REPLAY else COPY.fits
        try:
            operation = make_operation(
                letters=fits(confirmed.letters),
                by=name_of(request),
                kind=kind,
                source=confirmed.source,
                why=data["why"],
                queue=data["queue"] or None,
                pace=data["pace"],
                pause_above_percent=data["pause_above_percent"],
                pause_on_same_cause=data["pause_on_same_cause"],
                over_limit=data["over_limit"],
            )
        except UnknownQueue as exc:
            raise Refused(str(exc), "queue") from exc
        # What the dry run says is on the page that follows; it goes on there if this was too short for it.
        examine(operation.pk, seconds=EXAMINE_SECONDS)
        log_operation(request, operation, ADDITION, gettext("Made."))
        text = gettext("The operation is planned. Nothing has moved yet: look at the dry run, then start it.")
        model_admin.message_user(request, text, messages.SUCCESS)
        return HttpResponseRedirect(address_of_operation(operation, model_admin.admin_site.name))

    return run


def _replayable(letters: DeadLetterQuerySet) -> DeadLetterQuerySet:
    stale_before = timezone.now() - timedelta(seconds=dlq_settings().stale_claim_seconds)
    return letters.replayable(stale_before=stale_before)


def _all(letters: DeadLetterQuerySet) -> DeadLetterQuerySet:
    return letters


REPLAY = Action(
    name="replay",
    permission="replay_deadletter",
    title=_("Replay dead letters"),
    question=_("Send these tasks again, as the same work?"),
    button=_("Replay"),
    notes=(
        _(
            "A replay keeps the key of the work: a worker refuses it if that work was already done, and its "
            "letter is closed. Each gets a new task id and starts at its first attempt."
        ),
        _("This makes an operation on exactly these letters, with a dry run. You start it on its own page."),
    ),
    fits=_replayable,
    form=_form,
    run=_making(Kind.REPLAY),
)
COPY = Action(
    name="copy",
    permission="replay_deadletter",
    title=_("Send copies of dead letters"),
    question=_("Send copies of these tasks, as new work?"),
    button=_("Send a copy"),
    notes=(
        _(
            "A copy has a new key: it runs even if the work of the letter was done, and beside a replay of "
            "it. The letter stays as it is. To get the same work done, replay it instead."
        ),
        _("This makes an operation on exactly these letters, with a dry run. You start it on its own page."),
    ),
    fits=_all,
    form=_form,
    run=_making(Kind.COPY),
)
