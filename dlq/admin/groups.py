"""The pages of groups: what broke, how much of it, since when, and what was said of it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import quote, unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.timesince import timesince
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from dlq.access import VIEW, groups_for, may
from dlq.groups.duty import tend_lazily
from dlq.groups.figures import Trend, is_behind, open_counts, shown_count, trends
from dlq.models import LetterGroup
from dlq.reasons import label_of
from dlq.states import State

from .charts import sparkline
from .group_facets import facet_tabs, facet_view
from .group_filters import FACET_FILTERS, GroupStateFilter, GroupTaskFilter, OwnerFilter
from .group_page import group_context
from .group_triage import (
    MOST_AT_ONCE,
    REPLAY,
    TRIAGE,
    confirm_page,
    replay_view,
    triage_view,
    valid_fingerprint,
)
from .group_verbs import VERBS
from .paging import BoundedPaginator
from .permissions import has_permission, may_make, may_see_letters
from .read_only import ReadOnly

if TYPE_CHECKING:
    from typing import TypeAlias

    _ModelAdmin: TypeAlias = admin.ModelAdmin[LetterGroup]
else:  # Generic in the stubs only.
    _ModelAdmin = admin.ModelAdmin

__all__ = ["LetterGroupAdmin"]

_ACTIONS = ("acknowledge_selected", "snooze_selected", "resolve_selected")


class _GroupList(ChangeList):
    """Asks for the figures of all groups of the page at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        groups = list(self.result_list)
        names = [group.pk for group in groups]
        opened, trend = open_counts(names), trends(names)
        for group in groups:
            group.open_count = opened[group.pk]
            group.trend = trend[group.pk]
        self.result_list = groups


class LetterGroupAdmin(ReadOnly, _ModelAdmin):
    """Shows groups to who may see letters, and lets those with the permission decide on them.

    Everything that a page shows is limited by `get_queryset`. Nothing is changed but through
    `dlq.groups.triage`: no field of a group can be edited as such.
    """

    list_display = (
        *("state_text", "cause", "trend", "open_letters", "all_letters"),
        *("first_seen", "last_seen", "owner_text"),
    )
    list_display_links = ("cause",)
    list_filter = (GroupStateFilter, GroupTaskFilter, OwnerFilter, *FACET_FILTERS)
    search_fields = ("title", "task_name", "error_class", "place", "fingerprint__startswith")
    search_help_text = _("A part of the message, task, error class or place; or how a fingerprint begins.")
    list_per_page = 25
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = BoundedPaginator
    ordering = ("-last_seen_at", "fingerprint")
    actions = _ACTIONS
    actions_on_bottom = True
    # What a page made of fields would show; ours is made of sections.
    fields = ("fingerprint",)

    class Media:
        css = {"all": ("dlq/admin.css", "dlq/groups.css")}

    # Permissions

    def has_view_permission(self, request: HttpRequest, obj: LetterGroup | None = None) -> bool:
        """Who may see letters may see what they have in common."""
        return may_see_letters(request)

    def has_triage_permission(self, request: HttpRequest) -> bool:
        """Named by the actions. Both: who may not see a group may not decide on it."""
        return self.has_view_permission(request) and has_permission(request, "triage_deadletter")

    def has_replay_permission(self, request: HttpRequest) -> bool:
        """Of making operations."""
        return may_make(request)

    def may_triage(self, request: HttpRequest, group: LetterGroup) -> bool:
        """This one: a task may ask for a permission of its own."""
        return self.has_triage_permission(request) and may(request.user, TRIAGE, group.task_name)

    def may_replay(self, request: HttpRequest, group: LetterGroup) -> bool:
        """Likewise."""
        return self.has_replay_permission(request) and may(request.user, REPLAY, group.task_name)

    # Addresses

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("triage/<slug:verb>/", wrap(self.triage_view), name="dlq_lettergroup_triage"),
            path("by/<slug:facet>/", wrap(self.by_view), name="dlq_lettergroup_by"),
            path("<path:object_id>/replay/", wrap(self.replay_view), name="dlq_lettergroup_replay"),
            *super().get_urls(),
        ]

    def address(self, fingerprint: str, view: str = "change") -> str:
        """Of a page of one group."""
        return self._reverse(view, quote(fingerprint))

    def list_address(self, query: str = "") -> str:
        """Of the list, with the filters of this query string."""
        return f"{self._reverse('changelist')}{f'?{query}' if query else ''}"

    def triage_address(self, verb: str) -> str:
        """Where a decision is posted."""
        return self._reverse("triage", verb)

    def facet_address(self, facet: str) -> str:
        """Of another grouping."""
        return self._reverse("by", facet)

    def _reverse(self, view: str, *args: str) -> str:
        return reverse(f"admin:dlq_lettergroup_{view}", args=args, current_app=self.admin_site.name)

    # Views

    def triage_view(self, request: HttpRequest, verb: str) -> HttpResponse:
        """Decisions on one group or several."""
        return triage_view(self, request, verb)

    def by_view(self, request: HttpRequest, facet: str) -> HttpResponse:
        """Letters by something else than their cause."""
        return facet_view(self, request, facet)

    def replay_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """An operation on the open letters of a group."""
        return replay_view(self, request, unquote(object_id))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method == "POST":
            # Django would answer a forged action with "No action selected".
            if set(request.POST.getlist("action")) & set(_ACTIONS) and not self.has_triage_permission(
                request
            ):
                raise PermissionDenied
            if not all(map(valid_fingerprint, request.POST.getlist(ACTION_CHECKBOX_NAME))):
                self.message_user(
                    request, gettext("The selection names no groups. Nothing was changed."), messages.ERROR
                )
                return HttpResponseRedirect(request.get_full_path())
        elif self.has_view_permission(request):
            tend_lazily()
        context = {
            "title": capfirst(self.opts.verbose_name_plural),
            "tabs": facet_tabs(self),
            "is_behind": is_behind(),
        }
        return super().changelist_view(request, {**context, **(extra_context or {})})

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        if request.method == "GET" and self.has_view_permission(request):
            tend_lazily()
        context = {"title": _("Group of dead letters"), "subtitle": None}
        return super().change_view(request, object_id, form_url, {**context, **(extra_context or {})})

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: LetterGroup | None = None,
    ) -> HttpResponse:
        if obj is not None:
            context |= group_context(self, request, obj)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> LetterGroup | None:
        return super().get_object(request, object_id, from_field) if valid_fingerprint(object_id) else None

    # List

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Only what a filter of the list asks for: no way into letters and their payloads."""
        allowed = {str(each.parameter_name) for each in self.list_filter}
        return lookup in allowed and "\x00" not in str(value)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return _GroupList

    def get_queryset(self, request: HttpRequest) -> QuerySet[LetterGroup]:
        queryset = groups_for(request.user, VIEW, super().get_queryset(request))
        at = request.resolver_match
        is_list = at is not None and at.url_name == "dlq_lettergroup_changelist"
        return queryset.defer("note") if is_list else queryset

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[LetterGroup], search_term: str
    ) -> tuple[QuerySet[LetterGroup], bool]:
        found, may_repeat = super().get_search_results(request, queryset, search_term.replace("\x00", ""))
        return found, may_repeat

    @admin.action(description=_("Acknowledge selected groups"), permissions=["triage"])
    def acknowledge_selected(self, request: HttpRequest, queryset: QuerySet[LetterGroup]) -> HttpResponse:
        return self._selected(request, queryset, "acknowledge")

    @admin.action(description=_("Snooze selected groups"), permissions=["triage"])
    def snooze_selected(self, request: HttpRequest, queryset: QuerySet[LetterGroup]) -> HttpResponse:
        return self._selected(request, queryset, "snooze")

    @admin.action(description=_("Resolve selected groups"), permissions=["triage"])
    def resolve_selected(self, request: HttpRequest, queryset: QuerySet[LetterGroup]) -> HttpResponse:
        return self._selected(request, queryset, "resolve")

    def _selected(self, request: HttpRequest, queryset: QuerySet[LetterGroup], verb: str) -> HttpResponse:
        groups = list(groups_for(request.user, TRIAGE, queryset)[: MOST_AT_ONCE + 1])
        return confirm_page(
            self,
            request,
            VERBS[verb],
            groups[:MOST_AT_ONCE],
            filters=request.META.get("QUERY_STRING", ""),
            left_out=len(groups) > MOST_AT_ONCE,
        )

    # Columns

    @admin.display(description=_("state"), ordering="state")
    def state_text(self, group: LetterGroup) -> SafeString:
        return format_html(
            '<span class="dlq-state dlq-state-{}">{}</span>', group.state, group.get_state_display()
        )

    @admin.display(description=_("cause"), ordering="task_name")
    def cause(self, group: LetterGroup) -> SafeString:
        name = group.error_class.rpartition(".")[2] or label_of(group.reason)
        return format_html(
            '<span class="dlq-cause"><strong>{}</strong> <span class="dlq-task">{}</span></span> '
            '<span class="dlq-message">{}</span> <span class="dlq-place">{}</span>',
            name,
            group.task_name,
            group.title,
            group.place,
        )

    @admin.display(description=_("last 24 hours"))
    def trend(self, group: LetterGroup) -> SafeString:
        trend: Trend = group.trend  # type: ignore[attr-defined]
        return format_html(
            '{} <span class="dlq-number">{}</span>', sparkline(trend), f"{trend.last_24_hours:,}"
        )

    @admin.display(description=_("open letters"))
    def open_letters(self, group: LetterGroup) -> str | SafeString:
        count: int = group.open_count  # type: ignore[attr-defined]
        if not count:
            return "0"
        return self._letters_link(shown_count(count), group=group.pk, state__exact=State.OPEN.value)

    @admin.display(description=_("all letters"), ordering="letters")
    def all_letters(self, group: LetterGroup) -> SafeString:
        return self._letters_link(f"{group.letters:,}", group=group.pk)

    @admin.display(description=_("first seen, ago"), ordering="first_seen_at")
    def first_seen(self, group: LetterGroup) -> SafeString:
        return _age(group.first_seen_at)

    @admin.display(description=_("last seen, ago"), ordering="last_seen_at")
    def last_seen(self, group: LetterGroup) -> SafeString:
        return _age(group.last_seen_at)

    @admin.display(description=_("owner"), ordering="owner", empty_value="-")
    def owner_text(self, group: LetterGroup) -> str | None:
        return group.owner or None

    def _letters_link(self, text: str, **filters: str) -> SafeString:
        letters = reverse("admin:dlq_deadletter_changelist", current_app=self.admin_site.name)
        return format_html('<a href="{}?{}">{}</a>', letters, urlencode(filters), text)


def _age(moment: datetime) -> SafeString:
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        moment.isoformat(),
        moment.isoformat(sep=" ", timespec="seconds"),
        timesince(moment, depth=1),
    )
