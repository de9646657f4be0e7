"""Edit and replay, in three steps of one page: the arguments as JSON, the difference, and then it is sent.

Nothing is kept between the steps but what the browser sends back, and each step asks for the permission
and the state of the letter again. Hidden values never leave the server: what is locked is not read from a
request. Of two editors the first whose operation claims the letter has it. Who comes after that is told here;
who comes at the same moment is told on the page of the operation, whose only item ends as not sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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

from dlq.conf import database_alias, dlq_settings
from dlq.errors import NotEdited, UnknownQueue
from dlq.lookup import letters_of
from dlq.models import DeadLetter, Operation, OperationItem
from dlq.operations.canvas import canvas_of_row
from dlq.operations.control import start
from dlq.operations.editing import Change, Editable, Field, edit, editable, make_edit_operation
from dlq.operations.examine import examine
from dlq.operations.states import ItemState, Kind, OperationState

from .actions import TextField
from .permissions import may_edit, name_of
from .replay_form import known_queues
from .replaying import EXAMINE_SECONDS, REPLAY, address_of_operation, log_operation

if TYPE_CHECKING:
    from .letters import DeadLetterAdmin

__all__ = ["EDIT_LABEL", "edit_view", "may_be_edited"]

EDIT_LABEL = _("Edit and replay")
_FORM, _DIFFERENCE = "admin/dlq/deadletter/edit.html", "admin/dlq/deadletter/edit_difference.html"
_MOST_ROWS = 20
_ARGUMENT = "argument:"
_STARTED = (
    *(OperationState.AWAITING_APPROVAL, OperationState.RUNNING, OperationState.PAUSED),
    *(OperationState.SETTLING, OperationState.CANCELLED),
)
_IDENTITY: Mapping[str, str | Promise] = {
    "delivery_key": _("delivery key"),
    "replay_number": _("replay number"),
    "task_id": _("task id of its replay"),
    "root_id": _("root id"),
    "parent_id": _("parent id"),
}


class EditForm(forms.Form):
    """What is asked beside the arguments."""

    why = TextField(
        label=_("Reason"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"}),
        help_text=_("Kept with the operation, for who reads of it later."),
    )
    queue = TextField(
        label=_("Another queue (optional)"),
        required=False,
        max_length=255,
        widget=forms.TextInput(attrs={"class": "vTextField", "list": "dlq-queues", "autocomplete": "off"}),
        help_text=_("Empty: it goes back to where it came from."),
    )
    over_limit = forms.BooleanField(
        label=_("Although it was replayed too often"),
        required=False,
        help_text=_("Without this it is left alone."),
    )

    def __init__(self, data: Any, *, letter: DeadLetter) -> None:
        super().__init__(data, auto_id="dlq-%s", label_suffix="")
        if letter.replay_number < dlq_settings().replay_limit:
            del self.fields["over_limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An argument as the form shows it. `described_by`: ids of what is said of it."""

    field: Field
    id: str
    name: str
    text: str
    error: str
    rows: int

    @property
    def described_by(self) -> str:
        """For aria-describedby."""
        parts = [f"{self.id}-help"]
        return " ".join([f"{self.id}-error", *parts] if self.error else parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Why this letter cannot be sent from here now."""

    text: str
    operation_address: str = ""


def may_be_edited(letter: DeadLetter) -> bool:
    """By its state."""
    return REPLAY.fits(letters_of([letter.pk])).exists()


def edit_view(model_admin: DeadLetterAdmin, request: HttpRequest, letter: DeadLetter) -> HttpResponse:
    """The form; the difference for a POST; and for a POST of the difference: sent."""
    if not may_edit(request):
        raise PermissionDenied
    rival = _rival(letter, model_admin.admin_site.name)
    known = editable(letter) if rival is None else Editable()
    if request.method != "POST" or rival is not None or known.problem:
        status = 409 if rival is not None and request.method == "POST" else 200
        return _form_page(model_admin, request, letter, known, rival=rival, status=status)
    arguments = _arguments(request, known)
    form = EditForm(request.POST, letter=letter)
    if not form.is_valid() or request.POST.get("step") == "back":
        return _form_page(model_admin, request, letter, known, arguments=arguments, form=form)
    try:
        if request.POST.get("step") == "send":
            return _send(model_admin, request, letter, arguments, form)
        changes = edit(letter, arguments).changes
    except NotEdited as exc:
        return _form_page(model_admin, request, letter, known, arguments=arguments, form=form, refused=exc)
    except UnknownQueue as exc:
        form.add_error("queue", str(exc))
        return _form_page(model_admin, request, letter, known, arguments=arguments, form=form)
    return _difference_page(model_admin, request, letter, known, arguments, form, changes)


def _send(
    model_admin: DeadLetterAdmin,
    request: HttpRequest,
    letter: DeadLetter,
    arguments: Mapping[str, str],
    form: EditForm,
) -> HttpResponse:
    data = form.cleaned_data
    operation, edited = make_edit_operation(
        letter,
        arguments,
        by=name_of(request),
        why=data["why"],
        queue=data["queue"] or None,
        over_limit=data.get("over_limit", False),
    )
    examine(operation.pk, seconds=EXAMINE_SECONDS, consumers=False)
    start(operation.pk, by=name_of(request))
    operation.refresh_from_db(using=database_alias())
    log_operation(request, operation, ADDITION, gettext("Made, and started."))
    names = ", ".join(change.name for change in edited.changes)
    LogEntry.objects.log_actions(
        user_id=cast("int", request.user.pk),  # The view let nobody else in.
        queryset=letters_of([letter.pk]).only("pk", "task_name", "task_id"),
        action_flag=CHANGE,
        change_message=gettext("Edited (%(names)s), in operation %(id)s.")
        % {"names": names or gettext("no argument"), "id": operation.pk},
    )
    if operation.state == OperationState.AWAITING_APPROVAL:
        text = gettext("Approval is asked for: somebody else must approve it.")
    else:
        text = gettext("The edited letter is on its way. What becomes of it is shown here.")
    model_admin.message_user(request, text, messages.SUCCESS)
    return HttpResponseRedirect(address_of_operation(operation, model_admin.admin_site.name))


def _arguments(request: HttpRequest, known: Editable) -> dict[str, str]:
    """Of what may be edited, as it was typed; of what is locked, as it was shown."""
    given: dict[str, str] = {}
    for field in known.fields:
        if field.unknown:
            continue  # The task takes it no more.
        if field.locked:
            given[field.name] = field.value_json
        else:
            given[field.name] = request.POST.get(f"{_ARGUMENT}{field.name}", "")
    return given


def _rival(letter: DeadLetter, site: str) -> Rival | None:
    items = OperationItem.objects.using(database_alias()).filter(
        letter_id=letter.pk,
        state__in=(ItemState.WAITING, ItemState.STAGED, ItemState.SENT),
        operation__state__in=_STARTED,
        operation__kind=Kind.REPLAY,
    )
    other = items.order_by("-operation__created_at").select_related("operation").only("operation").first()
    if other is not None:
        found: Operation = other.operation
        return Rival(
            text=gettext(
                "%(name)s was faster: another operation is about to send this letter, or has sent it."
            )
            % {"name": found.created_by},
            operation_address=address_of_operation(found, site),
        )
    if may_be_edited(letter):
        return None
    text = gettext("This letter is %(state)s: it cannot be sent from here any more.")
    return Rival(text=text % {"state": letter.get_state_display()})


def _form_page(
    model_admin: DeadLetterAdmin,
    request: HttpRequest,
    letter: DeadLetter,
    known: Editable,
    *,
    arguments: Mapping[str, str] | None = None,
    form: EditForm | None = None,
    refused: NotEdited | None = None,
    rival: Rival | None = None,
    status: int = 200,
) -> TemplateResponse:
    errors: Mapping[str, str] = refused.errors if refused is not None else {}
    inputs = []
    for number, field in enumerate(known.fields):
        text = field.value_json if arguments is None or field.locked else arguments.get(field.name, "")
        inputs.append(
            Input(
                field=field,
                id=f"dlq-argument-{number}",
                name=f"{_ARGUMENT}{field.name}",
                text=text,
                error=errors.get(field.name, ""),
                rows=min(_MOST_ROWS, max(2, text.count("\n") + 1)),
            )
        )
    context = {
        "title": EDIT_LABEL,
        "known": known,
        "inputs": inputs,
        "form": form or EditForm(None, letter=letter),
        "queues": known_queues() if rival is None else [],
        "problem": known.problem,
        "refused": str(refused) if refused is not None and not errors else "",
        "wrong": len(errors) + len(form.errors if form is not None else {}),
        "rival": rival,
    }
    return _page(model_admin, request, letter, known, _FORM, context, status=status)


def _difference_page(
    model_admin: DeadLetterAdmin,
    request: HttpRequest,
    letter: DeadLetter,
    known: Editable,
    arguments: Mapping[str, str],
    form: EditForm,
    changes: tuple[Change, ...],
) -> TemplateResponse:
    locked = {field.name for field in known.fields if field.locked}
    sent = [(f"{_ARGUMENT}{name}", text) for name, text in arguments.items() if name not in locked]
    sent += [(name, str(value)) for name, value in form.cleaned_data.items() if value]
    context = {
        "title": _("What is different"),
        "changes": changes,
        "hidden": sent,
        "why": form.cleaned_data["why"],
        "queue": form.cleaned_data["queue"],
        "notes": canvas_of_row(letter.canvas, Kind.REPLAY),
    }
    return _page(model_admin, request, letter, known, _DIFFERENCE, context)


def _page(
    model_admin: DeadLetterAdmin,
    request: HttpRequest,
    letter: DeadLetter,
    known: Editable,
    template: str,
    context: Mapping[str, Any],
    *,
    status: int = 200,
) -> TemplateResponse:
    request.current_app = model_admin.admin_site.name
    return TemplateResponse(
        request,
        template,
        {
            **model_admin.admin_site.each_context(request),
            "subtitle": None,
            "opts": model_admin.opts,
            "media": model_admin.media,
            "letter": letter,
            "identity": [(_IDENTITY.get(name, name), value) for name, value in known.identity if value],
            **context,
        },
        status=status,
    )
