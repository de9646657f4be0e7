"""What people do to an operation from its page: each a POST, asked for its permission again, and logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from dlq.access import covers
from dlq.conf import database_alias, dlq_settings
from dlq.errors import OwnApproval
from dlq.lookup import letters_of
from dlq.models import DeadLetter, Operation, OperationItem
from dlq.operations import control
from dlq.operations.examine import BLOCKING, examine
from dlq.operations.progress import progress
from dlq.operations.states import ItemState, OperationState

from .operation_words import deed_of, standing
from .permissions import is_own, may_approve, may_control, name_of
from .replaying import EXAMINE_SECONDS, address_of_operation, log_operation

if TYPE_CHECKING:
    from .operation_admin import OperationAdmin

__all__ = ["CONTROLS", "Control", "control_view", "log_letters", "offered"]

MOST_LOGGED = 1_000
_TEMPLATE = "admin/dlq/operation/confirm.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """`question`: it is asked first. `done` is told and logged. `sends`: it makes letters move, so the user
    must be allowed to act on the tasks of all of them."""

    name: str
    label: str | Promise
    states: frozenset[OperationState]
    allowed: Callable[[HttpRequest, Operation], bool] = may_control
    run: Callable[[HttpRequest, Operation], bool]
    done: str | Promise
    question: str | Promise = ""
    is_danger: bool = False
    sends: bool = False

    def may(self, request: HttpRequest, operation: Operation) -> bool:
        """By permission, for this operation."""
        if not self.allowed(request, operation):
            return False
        letters = DeadLetter.objects.using(database_alias()).filter(items__operation_id=operation.pk)
        return not self.sends or covers(request.user, operation.kind, letters)


def _examine(_request: HttpRequest, operation: Operation) -> bool:
    examine(operation.pk, seconds=EXAMINE_SECONDS)
    return True


def _start(request: HttpRequest, operation: Operation) -> bool:
    return control.start(operation.pk, by=name_of(request))


def _approve(request: HttpRequest, operation: Operation) -> bool:
    return control.approve(operation.pk, by=name_of(request))


def _pause(request: HttpRequest, operation: Operation) -> bool:
    return control.pause(operation.pk, by=name_of(request))


def _resume(request: HttpRequest, operation: Operation) -> bool:
    return control.resume(operation.pk, by=name_of(request))


def _cancel(request: HttpRequest, operation: Operation) -> bool:
    return control.cancel(operation.pk, by=name_of(request))


CONTROLS: Mapping[str, Control] = {
    each.name: each
    for each in (
        Control(
            name="examine",
            label=_("Go on examining"),
            states=frozenset({OperationState.PLANNED, OperationState.AWAITING_APPROVAL}),
            run=_examine,
            done="",
        ),
        Control(
            name="start",
            label=_("Start"),
            states=frozenset({OperationState.PLANNED}),
            run=_start,
            done=_("Started."),
            sends=True,
        ),
        Control(
            name="approve",
            label=_("Approve and start"),
            states=frozenset({OperationState.AWAITING_APPROVAL}),
            allowed=may_approve,
            run=_approve,
            done=_("Approved and started."),
            sends=True,
            question=_("Approve this operation? It starts at once."),
        ),
        Control(
            name="resume",
            label=_("Resume"),
            states=frozenset({OperationState.PAUSED}),
            run=_resume,
            done=_("Resumed. Outcomes until now pause it no more."),
            sends=True,
        ),
        Control(
            name="pause",
            label=_("Pause"),
            states=frozenset({OperationState.RUNNING}),
            run=_pause,
            done=_("Paused."),
        ),
        Control(
            name="cancel",
            label=_("Cancel the operation"),
            states=frozenset(
                {
                    *(OperationState.PLANNED, OperationState.AWAITING_APPROVAL),
                    *(OperationState.RUNNING, OperationState.PAUSED),
                }
            ),
            run=_cancel,
            done=_("Cancelled."),
            question=_(
                "Cancel this operation? What was not sent stays as it is, and this operation never sends it. "
                "What was sent runs on."
            ),
            is_danger=True,
        ),
    )
}


def offered(request: HttpRequest, operation: Operation, site: str) -> list[dict[str, Any]]:
    """The buttons that this user has now."""
    return [
        {
            "name": each.name,
            "label": _label(each, operation),
            "address": address_of_operation(operation, site, each.name),
            "is_danger": each.is_danger,
            "is_first": each.name in ("start", "approve", "resume"),
        }
        for each in CONTROLS.values()
        if operation.state in each.states and each.name != "examine" and each.may(request, operation)
    ]


def control_view(
    model_admin: OperationAdmin, request: HttpRequest, operation: Operation, each: Control
) -> HttpResponse:
    """Acts on a POST; asks first where a question is due."""
    if not each.may(request, operation):
        if each.name == "approve" and is_own(request, operation):
            raise PermissionDenied(gettext("You made this operation; somebody else must approve it."))
        raise PermissionDenied
    site = model_admin.admin_site.name
    if request.method != "POST":
        return HttpResponseNotAllowed(("POST",))
    if each.question and request.POST.get("confirmed") != "yes":
        return _question(model_admin, request, operation, each)
    back = HttpResponseRedirect(address_of_operation(operation, site))
    try:
        changed = each.run(request, operation)
    except OwnApproval as exc:
        raise PermissionDenied(str(exc)) from exc
    operation.refresh_from_db(using=database_alias())
    if not changed:
        text = gettext("Nothing was changed, because somebody was faster: %(standing)s") % {
            "standing": standing(operation, progress(operation))
        }
        model_admin.message_user(request, text, messages.WARNING)
        return back
    told = _told(each, operation)
    if told:
        log_operation(request, operation, CHANGE, told)
        model_admin.message_user(request, told, messages.SUCCESS)
    if each.name in ("start", "approve") and operation.state != OperationState.AWAITING_APPROVAL:
        log_letters(request, operation)
    return back


def log_letters(request: HttpRequest, operation: Operation) -> None:
    """One entry in the history of each letter that it is to send; of the first MOST_LOGGED."""
    items = OperationItem.objects.using(database_alias()).filter(operation_id=operation.pk)
    # What the dry run has seen to be blocked is not sent.
    moving = items.exclude(state=ItemState.NOT_SENT).exclude(verdict__in=BLOCKING).order_by("position")
    ids = list(moving.values_list("letter_id", flat=True)[:MOST_LOGGED])
    LogEntry.objects.log_actions(
        user_id=cast("int", request.user.pk),  # The view let nobody else in.
        queryset=letters_of(ids).only("pk", "task_name", "task_id"),
        action_flag=CHANGE,
        change_message=gettext("In operation %(id)s (%(kind)s).")
        % {"id": operation.pk, "kind": operation.get_kind_display()},
    )


def _label(each: Control, operation: Operation) -> str | Promise:
    above = dlq_settings().approval_above
    if each.name == "start" and above is not None and operation.total > above:
        return _("Ask for approval")
    return each.label


def _told(each: Control, operation: Operation) -> str:
    if each.name == "start" and operation.state == OperationState.AWAITING_APPROVAL:
        return gettext("Approval is asked for: somebody else must approve it.")
    return str(each.done)


def _question(
    model_admin: OperationAdmin, request: HttpRequest, operation: Operation, each: Control
) -> TemplateResponse:
    how_far = progress(operation)
    context: dict[str, Any] = {
        **model_admin.admin_site.each_context(request),
        "title": each.label,
        "subtitle": None,
        "opts": model_admin.opts,
        "media": model_admin.media,
        "operation": operation,
        "control": each,
        "deed": deed_of(operation),
        "standing": standing(operation, how_far),
        "progress": how_far,
    }
    request.current_app = model_admin.admin_site.name
    return TemplateResponse(request, _TEMPLATE, context)
