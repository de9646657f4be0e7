"""The pages of operations: their list, and one that shows all of an operation and lets it be run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from dlq.models import Operation
from dlq.operations.progress import Progress, progress_of
from dlq.operations.states import OperationState

from .operation_controls import CONTROLS, Control, control_view
from .operation_page import operation_context
from .operation_words import source_in_words
from .paging import BoundedPaginator
from .permissions import may_see, name_of, sees_only_own
from .read_only import ReadOnly

if TYPE_CHECKING:
    from typing import TypeAlias

    _ModelAdmin: TypeAlias = admin.ModelAdmin[Operation]
else:  # Generic in the stubs only.
    _ModelAdmin = admin.ModelAdmin

__all__ = ["OperationAdmin"]

_TEMPLATE = "admin/dlq/operation/page.html"
_MOST_COUNTED = 200_000


class OperationAdmin(ReadOnly, _ModelAdmin):
    """Shows operations; adds, changes and deletes none. `permissions` says who may do what."""

    list_display = ("made", "kind", "state_text", "made_from", "created_by", "total", "how_far")
    list_display_links = ("made",)
    list_filter = ("state", "kind")
    list_per_page = 50
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = BoundedPaginator
    ordering = ("-created_at",)
    sortable_by = ("made",)
    actions = None

    class Media:
        css = {"all": ("dlq/admin.css", "dlq/operations.css")}

    # Permissions

    def has_view_permission(self, request: HttpRequest, obj: Operation | None = None) -> bool:
        return may_see(request, obj)

    # List

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Only what the filters of the list ask for: no question about payloads by way of the items."""
        return lookup in {"state__exact", "kind__exact"} and "\x00" not in str(value)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Operation]:
        queryset = super().get_queryset(request)
        return queryset.filter(created_by=name_of(request)) if sees_only_own(request) else queryset

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist = super().get_changelist_instance(request)
        rows = list(changelist.result_list)
        counted = _counted(rows)
        found = progress_of(counted)
        for row in rows:
            row.how_far_it_is = found.get(row.pk, Progress()) if row.pk in counted else None
        changelist.result_list = rows
        return changelist

    @admin.display(description=_("made"), ordering="created_at")
    def made(self, operation: Operation) -> SafeString:
        moment = operation.created_at
        return format_html(
            '<time datetime="{}" title="{}">{}</time>',
            moment.isoformat(),
            moment.isoformat(sep=" ", timespec="seconds"),
            gettext("%(age)s ago") % {"age": timesince(moment, depth=1)},
        )

    @admin.display(description=_("state"))
    def state_text(self, operation: Operation) -> SafeString:
        return format_html(
            '<span class="dlq-state dlq-state-{}">{}</span>', operation.state, operation.get_state_display()
        )

    @admin.display(description=_("made from"))
    def made_from(self, operation: Operation) -> str:
        return source_in_words(operation.source if isinstance(operation.source, dict) else {})

    @admin.display(description=_("outcomes"))
    def how_far(self, operation: Operation) -> SafeString:
        found: Progress | None = getattr(operation, "how_far_it_is", None)
        if found is None:
            return format_html('<span title="{}">-</span>', gettext("Too many to be counted here."))
        text = gettext("%(percent)d %% known") % {"percent": found.percent}
        parts = [
            (found.succeeded, gettext("succeeded")),
            (found.came_back, gettext("came back")),
            (found.lost, gettext("lost")),
            (found.not_sent, gettext("not sent")),
        ]
        said = ", ".join(f"{count} {label}" for count, label in parts if count)
        return format_html(
            '<progress max="100" value="{}" aria-label="{}"></progress> <span>{}</span>',
            found.percent,
            text,
            said or text,
        )

    # One operation

    def get_urls(self) -> list[URLPattern]:
        views = [
            path(
                f"<uuid:operation_id>/{each.name}/",
                self.admin_site.admin_view(self._view_of(each)),
                name=f"dlq_operation_{each.name}",
            )
            for each in CONTROLS.values()
        ]
        return [*views, *super().get_urls()]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Changes nothing, and answers to GET and HEAD only."""
        operation = self.get_object(request, object_id)
        if operation is None:
            return self._missing(request, object_id)
        if request.method not in ("GET", "HEAD") or not may_see(request, operation):
            raise PermissionDenied
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "title": gettext("Operation: %(kind)s") % {"kind": operation.get_kind_display()},
            "subtitle": None,
            "opts": self.opts,
            "media": self.media,
            **operation_context(self, request, operation),
            **(extra_context or {}),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, _TEMPLATE, context)

    def _view_of(self, each: Control) -> Any:
        def view(request: HttpRequest, operation_id: UUID) -> HttpResponse:
            operation = self.get_object(request, str(operation_id))
            if operation is None:
                return self._missing(request, str(operation_id))
            if not may_see(request, operation):
                raise PermissionDenied
            return control_view(self, request, operation, each)

        return view

    def _missing(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Also what is not for this user: whether it exists is none of their business."""
        if not may_see(request):
            raise PermissionDenied
        if request.method == "POST" and sees_only_own(request):
            raise PermissionDenied
        return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]


def _counted(rows: Sequence[Operation]) -> list[UUID]:
    """Those whose items are counted for the list: what is not closed first, up to so many items together."""
    counted = []
    left = _MOST_COUNTED
    for row in sorted(rows, key=lambda row: row.state == OperationState.CLOSED):
        if row.total <= left:
            counted.append(row.pk)
            left -= row.total
    return counted
