"""Re-run the whole chord of a letter: what was found of its members, and then it is sent.

Each step asks for the permission, for the letters and for the kept members again. It takes the permission to
replay, and with DLQ["TASK_PERMISSIONS"] that for each member's task: all of them do their work once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from dlq.access import may as may_act
from dlq.conf import database_alias, dlq_settings
from dlq.errors import NotRerun
from dlq.lookup import letters_of
from dlq.models import DeadLetter, OperationItem
from dlq.operations.chord_rerun import FoundChord, FoundMember, Standing, find_chord, make_chord_operation
from dlq.operations.control import start
from dlq.operations.examine import examine
from dlq.operations.states import OperationState

from .actions import TextField
from .editing import may_be_edited
from .permissions import may_make, name_of
from .replaying import EXAMINE_SECONDS, address_of_operation, log_operation

if TYPE_CHECKING:
    from .letters import DeadLetterAdmin

__all__ = ["CHORD_LABEL", "chord_view", "may_be_rerun"]

CHORD_LABEL = _("Re-run the whole chord")
_TEMPLATE = "admin/dlq/deadletter/chord.html"
_STANDINGS: dict[Standing, str | Promise] = {
    Standing.SUCCEEDED: _("succeeded; it runs once more"),
    Standing.LETTER: _("dead letter; it is replayed"),
    Standing.MISSING: _("missing"),
}


class ChordForm(forms.Form):
    """What is asked before it is sent."""

    why = TextField(
        label=_("Reason"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"}),
        help_text=_("Kept with the operation, for who reads of it later."),
    )
    over_limit = forms.BooleanField(
        label=_("Although it was replayed too often"),
        required=False,
        help_text=_("Without this the chord is not run again, if one of its letters was."),
    )

    def __init__(self, data: Any) -> None:
        super().__init__(data, auto_id="dlq-%s", label_suffix="")


def may_be_rerun(request: HttpRequest, letter: DeadLetter) -> bool:
    """Whether the page is offered; what can be done is found there."""
    return bool(
        letter.canvas.get("chord")
        and may_make(request)
        and may_act(request.user, "replay", letter.task_name)
        and may_be_edited(letter)
    )


def chord_view(model_admin: DeadLetterAdmin, request: HttpRequest, letter: DeadLetter) -> HttpResponse:
    """What was found; and for a POST: sent."""
    if not may_make(request) or not may_act(request.user, "replay", letter.task_name):
        raise PermissionDenied
    form = ChordForm(request.POST if request.method == "POST" else None)
    over_limit = bool(form.is_valid() and form.cleaned_data["over_limit"])
    # With the limit asked for below it: one who only looks is told what could be done.
    chord = find_chord(letter, over_limit=over_limit or request.method != "POST")
    if not all(may_act(request.user, "replay", each.task_name) for each in chord.members if each.task_name):
        raise PermissionDenied
    if request.method != "POST" or not form.is_valid():
        return _page(model_admin, request, letter, chord, form)
    try:
        return _send(model_admin, request, letter, form, over_limit)
    except NotRerun as exc:
        return _page(model_admin, request, letter, chord, form, refused=str(exc))


def _send(
    model_admin: DeadLetterAdmin, request: HttpRequest, letter: DeadLetter, form: ChordForm, over_limit: bool
) -> HttpResponse:
    operation = make_chord_operation(
        letter, by=name_of(request), why=form.cleaned_data["why"], over_limit=over_limit
    )
    examine(operation.pk, seconds=EXAMINE_SECONDS, consumers=False)
    start(operation.pk, by=name_of(request))
    operation.refresh_from_db(using=database_alias())
    log_operation(request, operation, ADDITION, gettext("Made, and started."))
    items = OperationItem.objects.using(database_alias()).filter(operation_id=operation.pk)
    LogEntry.objects.log_actions(
        user_id=cast("int", request.user.pk),  # The view let nobody else in.
        queryset=letters_of(items.values_list("letter_id", flat=True)).only("pk", "task_name", "task_id"),
        action_flag=CHANGE,
        change_message=gettext("Run again with its whole chord, in operation %(id)s.") % {"id": operation.pk},
    )
    if operation.state == OperationState.AWAITING_APPROVAL:
        text = gettext("Approval is asked for: somebody else must approve it.")
    else:
        text = gettext("The chord is on its way. What becomes of its letters is shown here.")
    model_admin.message_user(request, text, messages.SUCCESS)
    return HttpResponseRedirect(address_of_operation(operation, model_admin.admin_site.name))


def _page(
    model_admin: DeadLetterAdmin,
    request: HttpRequest,
    letter: DeadLetter,
    chord: FoundChord,
    form: ChordForm,
    *,
    refused: str = "",
) -> TemplateResponse:
    request.current_app = model_admin.admin_site.name
    limit = dlq_settings().replay_limit
    letters = [each.letter for each in chord.members if each.letter is not None]
    if not letters_of(letters).filter(replay_number__gte=limit).exists():
        form.fields.pop("over_limit", None)
    return TemplateResponse(
        request,
        _TEMPLATE,
        {
            **model_admin.admin_site.each_context(request),
            "title": CHORD_LABEL,
            "subtitle": None,
            "opts": model_admin.opts,
            "media": model_admin.media,
            "letter": letter,
            "chord": chord,
            "members": [(each, _standing(each)) for each in chord.members],
            "refused": refused or chord.problem,
            "form": form,
        },
        status=409 if refused else 200,
    )


def _standing(member: FoundMember) -> str:
    text = str(_STANDINGS[member.standing])
    return f"{text}: {member.why}" if member.why else text
