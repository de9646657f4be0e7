"""Discard, as an action of the admin: bounded, with a reason, one log entry a letter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from django import forms
from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.http import HttpRequest, QueryDict
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from dlq.discard import discard
from dlq.lookup import letters_of
from dlq.models import DeadLetter, DeadLetterQuerySet

from .actions import Action, Confirmed, TextField

if TYPE_CHECKING:
    from .letters import DeadLetterAdmin

__all__ = ["DISCARD", "MOST_AT_ONCE"]

MOST_AT_ONCE = 5_000


class DiscardForm(forms.Form):
    """Why."""

    reason = TextField(
        label=_("Reason"),
        required=False,
        strip=True,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
        help_text=_("Kept with the letters and in their history."),
    )


def _form(data: QueryDict | None) -> forms.Form:
    return DiscardForm(data, auto_id="dlq-%s", label_suffix="")


def _discard(model_admin: DeadLetterAdmin, request: HttpRequest, confirmed: Confirmed) -> None:
    # Counted among all, the oldest first: a request must end, and what it leaves stays open.
    oldest = confirmed.letters.order_by("failed_at", "pk").values_list("pk", flat=True)
    reason = confirmed.data["reason"]
    outcome = discard(list(oldest[:MOST_AT_ONCE]), by=request.user.get_username(), reason=reason)
    if outcome.discarded:
        count = len(outcome.discarded)
        text = ngettext("%(count)d letter was discarded.", "%(count)d letters were discarded.", count)
        model_admin.message_user(request, text % {"count": count}, messages.SUCCESS)
        LogEntry.objects.log_actions(
            user_id=cast("int", request.user.pk),  # The view let nobody else in.
            queryset=letters_of(outcome.discarded).only("pk", "task_name", "task_id"),
            action_flag=CHANGE,
            change_message=gettext("Discarded: %(reason)s")
            % {"reason": reason or gettext("no reason given")},
        )
    _tell_skipped(model_admin, request, outcome.skipped)


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


DISCARD = Action(
    name="discard",
    permission="discard_deadletter",
    title=_("Discard dead letters"),
    question=_("Give these tasks up? The letters stay readable and can no longer be replayed."),
    button=_("Discard"),
    most=MOST_AT_ONCE,
    fits=DeadLetterQuerySet.open,
    form=_form,
    run=_discard,
)
