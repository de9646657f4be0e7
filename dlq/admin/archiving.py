"""Restore and purge, as actions of the admin: what became of discarding, taken back or made final."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import messages
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.http import HttpRequest, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from dlq.archive import NEWER, restore
from dlq.errors import WrongCount
from dlq.lookup import MISSING, letters_of
from dlq.models import DeadLetter, DeadLetterQuerySet
from dlq.purging import AWAITED, purge, purgeable

from .actions import Action, Confirmed, Refused, TextField

if TYPE_CHECKING:
    from .letters import DeadLetterAdmin

__all__ = ["MOST_AT_ONCE", "PURGE", "RESTORE"]

MOST_AT_ONCE = 5_000


class RestoreForm(forms.Form):
    """Why."""

    reason = TextField(
        label=_("Reason"),
        required=False,
        strip=True,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
        help_text=_("Kept in the history of the letters."),
    )


class PurgeForm(forms.Form):
    """How many, typed in by who is sure."""

    count = forms.IntegerField(
        label=_("How many letters will be deleted for good?"),
        min_value=0,
        widget=forms.NumberInput(attrs={"autocomplete": "off", "inputmode": "numeric"}),
        help_text=_("Type the number above. There is no way back."),
    )


def _restore_form(data: QueryDict | None) -> forms.Form:
    return RestoreForm(data, auto_id="dlq-%s", label_suffix="")


def _purge_form(data: QueryDict | None) -> forms.Form:
    return PurgeForm(data, auto_id="dlq-%s", label_suffix="")


def _restore(model_admin: DeadLetterAdmin, request: HttpRequest, confirmed: Confirmed) -> None:
    oldest = confirmed.letters.order_by("failed_at", "pk").values_list("pk", flat=True)
    reason = confirmed.data["reason"]
    # Of those that may be restored: a bound on all would be used up by others.
    ids = list(oldest.filter(pk__in=confirmed.letters.discarded().values("pk"))[:MOST_AT_ONCE])
    outcome = restore(ids, by=request.user.get_username(), why=reason)
    if outcome.restored:
        count = len(outcome.restored)
        text = ngettext("%(count)d letter was restored.", "%(count)d letters were restored.", count)
        model_admin.message_user(request, text % {"count": count}, messages.SUCCESS)
        LogEntry.objects.log_actions(
            user_id=cast("int", request.user.pk),  # The view let nobody else in.
            queryset=letters_of(outcome.restored).only("pk", "task_name", "task_id"),
            action_flag=CHANGE,
            change_message=gettext("Restored: %(reason)s") % {"reason": reason or gettext("no reason given")},
        )
    _tell_left(model_admin, request, outcome.skipped)


def _purge(model_admin: DeadLetterAdmin, request: HttpRequest, confirmed: Confirmed) -> HttpResponseRedirect:
    oldest = purgeable(confirmed.letters).order_by("failed_at", "pk")
    # Named before they are gone: the history outlives them.
    letters = list(oldest.only("pk", "task_name", "task_id")[:MOST_AT_ONCE])
    try:
        outcome = purge(
            [letter.pk for letter in letters],
            by=request.user.get_username(),
            confirm_count=confirmed.data["count"],
        )
    except WrongCount as exc:
        raise Refused(
            gettext("%(count)d letters would be deleted. Nothing was.") % {"count": exc.expected}, "count"
        ) from exc
    left = set(letters_of(letter.pk for letter in letters).values_list("pk", flat=True))
    gone: Any = [letter for letter in letters if letter.pk not in left]
    if gone:
        LogEntry.objects.log_actions(
            user_id=cast("int", request.user.pk),
            queryset=gone,
            action_flag=DELETION,
            change_message=gettext("Purged for good."),
        )
    count = outcome.purged
    text = ngettext(
        "%(count)d letter was deleted for good.", "%(count)d letters were deleted for good.", count
    )
    model_admin.message_user(request, text % {"count": count}, messages.SUCCESS)
    _tell_left(model_admin, request, outcome.skipped)
    # The page of the letter is gone with it.
    return HttpResponseRedirect(
        reverse("admin:dlq_deadletter_changelist", current_app=model_admin.admin_site.name)
    )


def _tell_left(model_admin: DeadLetterAdmin, request: HttpRequest, skipped: Mapping[str, int]) -> None:
    if not skipped:
        return
    labels: dict[str, Any] = {
        **dict(DeadLetter._meta.get_field("state").flatchoices),
        NEWER: _("a newer letter of the same work is open or being replayed"),
        AWAITED: _("the outcome of its replay is not known yet"),
        MISSING: _("gone"),
    }
    why = ", ".join(f"{labels.get(name, name)}: {count}" for name, count in sorted(skipped.items()))
    count = sum(skipped.values())
    text = ngettext(
        "%(count)d letter was left alone (%(why)s).", "%(count)d letters were left alone (%(why)s).", count
    )
    model_admin.message_user(request, text % {"count": count, "why": why}, messages.WARNING)


RESTORE = Action(
    name="restore",
    # Who may discard may take it back.
    permission="discard_deadletter",
    title=_("Restore discarded letters"),
    question=_("Open these letters again?"),
    notes=(_("One is left alone while a newer letter of the same work is open or being replayed."),),
    button=_("Restore"),
    most=MOST_AT_ONCE,
    fits=DeadLetterQuerySet.discarded,
    form=_restore_form,
    run=_restore,
)
PURGE = Action(
    name="purge",
    permission="purge_deadletter",
    title=_("Purge dead letters"),
    question=_("Delete these letters for good, with their messages?"),
    notes=(
        _("Only replayed and discarded letters are deleted, and none whose replay has no known outcome yet."),
    ),
    button=_("Purge"),
    most=MOST_AT_ONCE,
    fits=purgeable,
    form=_purge_form,
    run=_purge,
)
