"""All letters by task, error class, queue, release or worker, from what was counted of their groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _

from dlq.access import VIEW, groups_for
from dlq.groups.figures import TODO, FacetRow, by_facet, is_behind
from dlq.states import State

if TYPE_CHECKING:
    from .groups import LetterGroupAdmin

__all__ = ["FACET_LABELS", "facet_tabs", "facet_view"]

_TEMPLATE = "admin/dlq/lettergroup/by.html"
_MOST_ROWS = 100
# Letters are found by these: others have no index.
_OF_LETTERS = ("task_name", "error_class", "queue")
FACET_LABELS: dict[str, str | Promise] = {
    "task_name": _("task"),
    "error_class": _("error class"),
    "queue": _("queue"),
    "release": _("release"),
    "worker": _("worker"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """`letters_address`: of its open letters; empty where they cannot be listed."""

    row: FacetRow
    groups_address: str
    todo_address: str
    letters_address: str


def facet_tabs(model_admin: LetterGroupAdmin, chosen: str = "") -> list[dict[str, Any]]:
    """Links to all the groupings."""
    return [
        {"label": label, "address": model_admin.facet_address(facet), "chosen": facet == chosen}
        for facet, label in FACET_LABELS.items()
    ]


def facet_view(model_admin: LetterGroupAdmin, request: HttpRequest, facet: str) -> HttpResponse:
    """Changes nothing, and answers to GET and HEAD only."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    if facet not in FACET_LABELS:
        raise Http404
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(("GET", "HEAD"))
    visible = groups_for(request.user, VIEW)
    # Without the question where the answer is all of them.
    found = by_facet(facet, most=_MOST_ROWS, groups=visible if visible.query.has_filters() else None)
    context: dict[str, Any] = {
        **model_admin.admin_site.each_context(request),
        "title": _("Dead letters by %(facet)s") % {"facet": FACET_LABELS[facet]},
        "subtitle": None,
        "opts": model_admin.opts,
        "media": model_admin.media,
        "label": FACET_LABELS[facet],
        "tabs": facet_tabs(model_admin, facet),
        "lines": [_line(model_admin, facet, row) for row in found.rows],
        "has_letters": facet in _OF_LETTERS,
        "more": found.more,
        "most": _MOST_ROWS,
        "is_behind": is_behind(),
    }
    request.current_app = model_admin.admin_site.name
    return TemplateResponse(request, _TEMPLATE, context)


def _line(model_admin: LetterGroupAdmin, facet: str, row: FacetRow) -> _Line:
    letters = reverse("admin:dlq_deadletter_changelist", current_app=model_admin.admin_site.name)
    value = {facet: row.value}
    is_open = {"state__exact": State.OPEN.value}
    return _Line(
        row=row,
        groups_address=model_admin.list_address(urlencode(value)),
        todo_address=model_admin.list_address(urlencode({**value, "state": TODO})),
        letters_address=f"{letters}?{urlencode({**value, **is_open})}" if facet in _OF_LETTERS else "",
    )
