"""What can be done to letters, as the admin knows it: permission, confirm page with a form, one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, QueryDict
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.functional import Promise

from dlq.access import letters_for
from dlq.models import DeadLetterQuerySet
from dlq.text import clean

from .summary import MOST_COUNTED, summarise

if TYPE_CHECKING:
    from .letters import DeadLetterAdmin

__all__ = ["Action", "Confirmed", "Refused", "TextField", "confirm_or_perform"]

_TEMPLATE = "admin/dlq/deadletter/confirm.html"


class TextField(forms.CharField):
    """Text that every database stores: cleaned before anything changes, not met halfway."""

    def to_python(self, value: Any) -> Any:
        found = super().to_python(value)
        return clean(found) if isinstance(found, str) else found


class Refused(Exception):
    """What was asked cannot be done so; nothing was changed. `field`: what of the form says why."""

    def __init__(self, text: str, field: str | None = None) -> None:
        super().__init__(text)
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """What the user agreed to. `letters` were there when it was asked; `source`: how they were chosen."""

    letters: DeadLetterQuerySet
    data: Mapping[str, Any]
    source: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """`run` acts, tells the user, and says where to go on; None: back to where they came from.

    `most`: so many letters, the oldest, one confirmation reaches; None: all.
    """

    name: str
    permission: str
    title: str | Promise
    question: str | Promise
    button: str | Promise
    notes: tuple[str | Promise, ...] = ()
    most: int | None = None
    fits: Callable[[DeadLetterQuerySet], DeadLetterQuerySet]
    form: Callable[[QueryDict | None], forms.Form]
    run: Callable[[DeadLetterAdmin, HttpRequest, Confirmed], HttpResponse | None]


def confirm_or_perform(
    model_admin: DeadLetterAdmin,
    request: HttpRequest,
    action: Action,
    letters: DeadLetterQuerySet,
    *,
    hidden: Iterable[tuple[str, str]] = (),
    source: Mapping[str, Any] | None = None,
) -> HttpResponse | None:
    """The confirm page; or, when that page was posted, the deed.

    Nothing changes unless the request is a POST of the confirm page by a user with the permission,
    and nothing that was stored after the page was shown is touched.
    """
    if not model_admin.may(request, action):
        raise PermissionDenied
    letters = letters_for(request.user, action.name, letters)
    if request.method != "POST" or request.POST.get("confirmed") != "yes":
        return _page(model_admin, request, action, letters, action.form(None), hidden=hidden)
    form = action.form(request.POST)
    seen_until = _moment(request.POST.get("as_of"))
    chosen = letters if seen_until is None else letters.filter(stored_at__lte=seen_until)
    if form.is_valid():
        chosen_by = dict(source or {"kind": "selection"})
        if seen_until is not None and chosen_by["kind"] != "selection":
            chosen_by["as_of"] = seen_until.isoformat()
        confirmed = Confirmed(letters=chosen, data=form.cleaned_data, source=chosen_by)
        try:
            return action.run(model_admin, request, confirmed)
        except Refused as exc:
            form.add_error(exc.field, str(exc))
    return _page(model_admin, request, action, letters, form, hidden=hidden)


def _page(
    model_admin: DeadLetterAdmin,
    request: HttpRequest,
    action: Action,
    letters: DeadLetterQuerySet,
    form: forms.Form,
    *,
    hidden: Iterable[tuple[str, str]],
) -> TemplateResponse:
    summary = summarise(letters, fits=action.fits)
    context: dict[str, Any] = {
        **model_admin.admin_site.each_context(request),
        "title": action.title,
        "subtitle": None,
        "opts": model_admin.opts,
        "media": model_admin.media,
        "action": action,
        "form": form,
        "summary": summary,
        "most_counted": MOST_COUNTED,
        "too_many": action.most is not None and (summary.is_bounded or summary.fitting > action.most),
        "hidden": [*hidden, ("confirmed", "yes"), ("as_of", timezone.now().isoformat())],
    }
    request.current_app = model_admin.admin_site.name
    return TemplateResponse(request, _TEMPLATE, context)


def _moment(text: str | None) -> datetime | None:
    try:
        return parse_datetime(text) if text else None
    except ValueError:
        return None
