"""The page of unclassified errors: which classes no rule knows, and the settings that would name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _

from dlq.access import VIEW, letters_for
from dlq.states import State
from dlq.unclassified import UnclassifiedClass, unclassified
from dlq.verdicts import UNKNOWN

if TYPE_CHECKING:
    from .letters import DeadLetterAdmin

__all__ = ["unclassified_page"]

_TEMPLATE = "admin/dlq/deadletter/unclassified.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A class and the address of the list of its letters."""

    found: UnclassifiedClass
    address: str


def unclassified_page(model_admin: DeadLetterAdmin, request: HttpRequest) -> HttpResponse:
    """Changes nothing, and answers to GET and HEAD only."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(("GET", "HEAD"))
    name = model_admin.admin_site.name
    letters = reverse("admin:dlq_deadletter_changelist", current_app=name)
    found = unclassified(letters_for(request.user, VIEW))
    context: dict[str, Any] = {
        **model_admin.admin_site.each_context(request),
        "title": _("Unclassified errors"),
        "subtitle": None,
        "opts": model_admin.opts,
        "media": model_admin.media,
        "lines": [_Line(found=each, address=f"{letters}?{_query(each)}") for each in found.classes],
        "snippet": found.snippet,
        "more": found.more,
    }
    request.current_app = name
    return TemplateResponse(request, _TEMPLATE, context)


def _query(each: UnclassifiedClass) -> str:
    return urlencode({"state__exact": State.OPEN.value, "verdict": UNKNOWN, "error_class": each.error_class})
