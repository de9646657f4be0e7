"""The pages of dead letters: list, read-only detail, and the way to the confirm pages."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.timesince import timesince
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from dlq.access import VIEW, letters_for
from dlq.access import may as may_act
from dlq.models import DeadLetter, DeadLetterQuerySet, LetterGroup
from dlq.present import attempts_not_kept, visible_payload
from dlq.reasons import explanation_of, label_of

from .actions import Action, confirm_or_perform
from .archiving import PURGE, RESTORE
from .chording import CHORD_LABEL, chord_view, may_be_rerun
from .discarding import DISCARD
from .editing import EDIT_LABEL, edit_view, may_be_edited
from .exporting import export_page
from .filters import AgeFilter, ErrorClassFilter, QueueFilter, ReasonFilter, TaskFilter, VerdictFilter
from .group_filters import GroupFilter
from .letter_items import items_of, origins_of
from .paging import BoundedList, BoundedPaginator
from .permissions import may_edit, may_make
from .read_only import ReadOnly
from .replaying import COPY, REPLAY
from .sources import source_of_address
from .unclassified import unclassified_page

_LATER = frozenset(
    {
        *("claimed_at", "claimed_by", "replayed_at", "replay_error"),
        *("closed_at", "closed_by", "discard_reason", "imported_from"),
    }
)

if TYPE_CHECKING:
    from typing import TypeAlias

    _ModelAdmin: TypeAlias = admin.ModelAdmin[DeadLetter]
else:  # Generic in the stubs only.
    _ModelAdmin = admin.ModelAdmin

__all__ = ["ACTIONS", "DeadLetterAdmin"]

ACTIONS: Mapping[str, Action] = {action.name: action for action in (REPLAY, COPY, DISCARD, RESTORE, PURGE)}

_NOT_IN_LIST = (
    "sealed",
    "error_message",
    "canvas",
    "argument_names",
    "versions",
    "replay_error",
    "discard_reason",
)


class DeadLetterAdmin(ReadOnly, _ModelAdmin):
    """Reads, discards, restores, purges, makes operations; edits none in place. Each has a permission."""

    list_display = ("state", "reason_text", "task_name", "queue", "error_name", "age", "replay")
    list_display_links = ("task_name",)
    list_filter = (
        *("state", ReasonFilter, VerdictFilter, TaskFilter, QueueFilter, ErrorClassFilter, AgeFilter),
        GroupFilter,
    )
    search_fields = ("=task_id", "=delivery_key", "=root_id")
    search_help_text = _("A whole task id, delivery key, root id or letter id.")
    list_per_page = 50
    show_full_result_count = False
    # A count for each choice of each filter would read every row.
    show_facets = admin.ShowFacets.NEVER
    paginator = BoundedPaginator
    ordering = ("-failed_at",)
    sortable_by = ("age",)
    actions = (
        *("replay_selected", "copy_selected", "discard_selected"),
        *("restore_selected", "purge_selected", "export_selected"),
    )
    actions_on_bottom = True
    fieldsets = (
        (
            None,
            {
                "fields": (
                    *("state", "reason_explained", "task_name", "task_id", "queue", "failed", "error"),
                    "cause",
                )
            },
        ),
        (_("Attempts, newest first"), {"fields": ("timeline",)}),
        (_("Arguments"), {"fields": ("arguments",)}),
        (_("Workflow"), {"fields": ("workflow",)}),
        (
            _("Replays"),
            {
                "fields": (
                    *(
                        "replay_number",
                        "original",
                        "followers",
                        "replay_task_id",
                        "in_operations",
                        "came_from",
                    ),
                    *("claimed_at", "claimed_by", "replayed_at", "replay_error"),
                    *("closed_at", "closed_by", "discard_reason"),
                )
            },
        ),
        (
            _("Message"),
            {
                "classes": ("collapse",),
                "fields": (
                    *("delivery_key", "occurrence", "captures", "root_id", "parent_id"),
                    *("exchange", "routing_key", "priority", "eta", "expires", "redelivered", "headers"),
                ),
            },
        ),
        (
            _("Origin"),
            {
                "classes": ("collapse",),
                "fields": (
                    *("worker", "release", "version_list", "first_seen_at", "stored_at", "last_captured_at"),
                    *("sealed_with", "imported_from"),
                ),
            },
        ),
    )

    class Media:
        css = {"all": ("dlq/admin.css", "dlq/operations.css")}

    # Permissions

    def has_view_permission(self, request: HttpRequest, obj: DeadLetter | None = None) -> bool:
        return self._has(request, "view_deadletter")

    def has_replay_permission(self, request: HttpRequest) -> bool:
        """Named by the action."""
        return self.may(request, REPLAY)

    def has_discard_permission(self, request: HttpRequest) -> bool:
        """Named by the action."""
        return self.may(request, DISCARD)

    def has_purge_permission(self, request: HttpRequest) -> bool:
        """Named by the action."""
        return self.may(request, PURGE)

    def may(self, request: HttpRequest, action: Action) -> bool:
        """Both: who may not see a letter may not act on it."""
        return self.has_view_permission(request) and self._has(request, action.permission)

    # List

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Who may only look has no boxes and no action: the export has a page of its own."""
        actions: dict[str, Any] = super().get_actions(request)
        return {} if actions.keys() == {"export_selected"} else actions

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Only what a filter of the list asks for.

        Django lets everybody who sees the list filter by any part of any column, and so read payloads
        that the permission hides, one comparison after another.
        """
        # No letter holds a NUL, and PostgreSQL refuses the question.
        return lookup in self._filter_parameters(request) and "\x00" not in str(value)

    def _filter_parameters(self, request: HttpRequest | None) -> set[str]:
        filters = self.list_filter if request is None else self.get_list_filter(request)
        found: set[str] = set()
        for each in filters:
            if isinstance(each, type) and issubclass(each, admin.SimpleListFilter):
                found.add(str(each.parameter_name))
            elif isinstance(each, str):
                found.add(f"{each}__exact")
        return found

    def get_queryset(self, request: HttpRequest) -> DeadLetterQuerySet:
        queryset = cast("DeadLetterQuerySet", super().get_queryset(request))
        queryset = letters_for(request.user, VIEW, queryset)
        at = request.resolver_match
        if at is not None and at.url_name is not None and at.url_name.endswith("_changelist"):
            return queryset.defer(*_NOT_IN_LIST)
        return queryset

    def get_search_results(  # type: ignore[override]
        self, request: HttpRequest, queryset: DeadLetterQuerySet, search_term: str
    ) -> tuple[DeadLetterQuerySet, bool]:
        """By whole ids only: each has an index, and a search within texts would read every row."""
        term = search_term.strip()
        if not term:
            return queryset, False
        wanted = Q(task_id=term) | Q(delivery_key=term) | Q(root_id=term)
        with suppress(ValueError):
            wanted |= Q(pk=UUID(term))
        return queryset.filter(wanted), False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[BoundedList]:
        return BoundedList

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method == "POST":
            # Django would answer a forged action with "No action selected".
            for name in request.POST.getlist("action"):
                action = ACTIONS.get(name.removesuffix("_selected"))
                if action is not None and not self.may(request, action):
                    raise PermissionDenied
            if not all(map(_is_id, request.POST.getlist(ACTION_CHECKBOX_NAME))):
                self.message_user(
                    request, gettext("The selection names no letters. Nothing was changed."), messages.ERROR
                )
                return HttpResponseRedirect(request.get_full_path())
        return super().changelist_view(request, extra_context)

    @admin.action(description=_("Replay selected letters"), permissions=["replay"])
    def replay_selected(self, request: HttpRequest, queryset: DeadLetterQuerySet) -> HttpResponse | None:
        return self._selected(request, queryset, REPLAY)

    @admin.action(description=_("Send copies of selected letters, as new work"), permissions=["replay"])
    def copy_selected(self, request: HttpRequest, queryset: DeadLetterQuerySet) -> HttpResponse | None:
        return self._selected(request, queryset, COPY)

    @admin.action(description=_("Discard selected letters"), permissions=["discard"])
    def discard_selected(self, request: HttpRequest, queryset: DeadLetterQuerySet) -> HttpResponse | None:
        return self._selected(request, queryset, DISCARD)

    @admin.action(description=_("Restore selected letters"), permissions=["discard"])
    def restore_selected(self, request: HttpRequest, queryset: DeadLetterQuerySet) -> HttpResponse | None:
        return self._selected(request, queryset, RESTORE)

    @admin.action(description=_("Purge selected letters, for good"), permissions=["purge"])
    def purge_selected(self, request: HttpRequest, queryset: DeadLetterQuerySet) -> HttpResponse | None:
        return self._selected(request, queryset, PURGE)

    @admin.action(description=_("Export selected letters"), permissions=["view"])
    def export_selected(self, request: HttpRequest, queryset: DeadLetterQuerySet) -> HttpResponseBase:
        return export_page(self, request, queryset.order_by(), hidden=self._hidden(request, "export"))

    def _selected(
        self, request: HttpRequest, queryset: DeadLetterQuerySet, action: Action
    ) -> HttpResponse | None:
        across = request.POST.get("select_across") == "1"
        hidden = self._hidden(request, action.name)
        source = source_of_address(request.GET.dict(), now=timezone.now()) if across else None
        return confirm_or_perform(self, request, action, queryset.order_by(), hidden=hidden, source=source)

    def _hidden(self, request: HttpRequest, action: str) -> list[tuple[str, str]]:
        """What says again which letters were selected."""
        chosen = request.POST.getlist(ACTION_CHECKBOX_NAME)
        across = request.POST.get("select_across") == "1"
        return [
            ("action", f"{action}_selected"),
            ("select_across", "1" if across else "0"),
            # With "all" chosen the filters in the address say which, and a form has room for few ids.
            *((ACTION_CHECKBOX_NAME, pk) for pk in (chosen[:1] if across else chosen)),
        ]

    # Detail

    def get_readonly_fields(self, request: HttpRequest, obj: DeadLetter | None = None) -> tuple[str, ...]:
        return tuple(name for _title, options in self.fieldsets for name in options["fields"])  # type: ignore[misc]

    def get_fieldsets(self, request: HttpRequest, obj: DeadLetter | None = None) -> Any:
        """Without what has not happened yet: a letter that nobody touched has no row of dashes."""
        if obj is None:
            return self.fieldsets
        return [
            (
                title,
                {**options, "fields": [n for n in options["fields"] if n not in _LATER or getattr(obj, n)]},
            )
            for title, options in self.fieldsets
        ]

    def get_urls(self) -> list[URLPattern]:
        views = [
            path(
                f"<uuid:letter_id>/{action.name}/",
                self.admin_site.admin_view(self._view_of(action)),
                name=f"dlq_deadletter_{action.name}",
            )
            for action in ACTIONS.values()
        ]
        edit = path(
            "<uuid:letter_id>/edit/", self.admin_site.admin_view(self.edit_view), name="dlq_deadletter_edit"
        )
        chord = path(
            "<uuid:letter_id>/chord/",
            self.admin_site.admin_view(self.chord_view),
            name="dlq_deadletter_chord",
        )
        unclassified = path(
            "unclassified/",
            self.admin_site.admin_view(self.unclassified_view),
            name="dlq_deadletter_unclassified",
        )
        export = path("export/", self.admin_site.admin_view(self.export_view), name="dlq_deadletter_export")
        return [*views, edit, chord, unclassified, export, *super().get_urls()]

    def unclassified_view(self, request: HttpRequest) -> HttpResponse:
        """The error classes that no rule knows."""
        return unclassified_page(self, request)

    def export_view(self, request: HttpRequest) -> HttpResponseBase:
        """All letters that the filters in the address allow, as a file."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            letters = self.get_changelist_instance(request).get_queryset(request)
        except IncorrectLookupParameters:
            return HttpResponseRedirect(
                reverse("admin:dlq_deadletter_changelist", current_app=self.admin_site.name)
            )
        return export_page(self, request, cast("DeadLetterQuerySet", letters).order_by(), hidden=())

    def edit_view(self, request: HttpRequest, letter_id: UUID) -> HttpResponse:
        """A letter's arguments, to be sent otherwise than they were kept."""
        if not may_edit(request):
            raise PermissionDenied
        letter = self.get_object(request, str(letter_id))
        if letter is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, str(letter_id))  # type: ignore[attr-defined,no-any-return]
        if not may_act(request.user, "edit", letter.task_name):
            raise PermissionDenied
        return edit_view(self, request, letter)

    def chord_view(self, request: HttpRequest, letter_id: UUID) -> HttpResponse:
        """All members of the chord that a letter is one of, to be sent once more."""
        if not may_make(request):
            raise PermissionDenied
        letter = self.get_object(request, str(letter_id))
        if letter is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, str(letter_id))  # type: ignore[attr-defined,no-any-return]
        return chord_view(self, request, letter)

    def _view_of(self, action: Action) -> Any:
        def view(request: HttpRequest, letter_id: UUID) -> HttpResponse:
            if not self.may(request, action):
                raise PermissionDenied
            letter = self.get_object(request, str(letter_id))
            if letter is None:
                return self._get_obj_does_not_exist_redirect(request, self.opts, str(letter_id))  # type: ignore[attr-defined,no-any-return]
            letters = self.get_queryset(request).filter(pk=letter_id)
            page = confirm_or_perform(self, request, action, letters)
            return page or HttpResponseRedirect(self._address(letter_id))

        return view

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        # The fields are methods without a request: what this user may see is decided here.
        may_see_payload = self._has(request, "view_payload")
        letter = self.get_object(request, object_id)
        buttons = [] if letter is None else self._buttons(request, letter)
        context = {"title": _("Dead letter"), "operations": buttons, "may_see_payload": may_see_payload}
        return super().change_view(request, object_id, form_url, {**context, **(extra_context or {})})

    def _buttons(self, request: HttpRequest, letter: DeadLetter) -> list[dict[str, Any]]:
        # Of no letter of a task that this user may not act on.
        same = letters_for(request.user, "act", DeadLetter.objects.filter(pk=letter.pk))
        buttons: list[dict[str, Any]] = [
            {"name": each.name, "button": each.button, "url": self._address(letter.pk, each.name)}
            for each in ACTIONS.values()
            if self.may(request, each) and each.fits(same).exists()
        ]
        if may_edit(request) and may_be_edited(letter) and may_act(request.user, "edit", letter.task_name):
            edit = {"name": "edit", "button": EDIT_LABEL, "url": self._address(letter.pk, "edit")}
            buttons.insert(1, edit)
        if may_be_rerun(request, letter):
            chord = {"name": "chord", "button": CHORD_LABEL, "url": self._address(letter.pk, "chord")}
            buttons.insert(1, chord)
        return buttons

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> DeadLetter | None:
        letter = super().get_object(request, object_id, from_field)
        if letter is not None:
            letter.payload_may_be_shown = self._has(request, "view_payload")  # type: ignore[attr-defined]
            letter.asked_by = request  # type: ignore[attr-defined]
        return letter

    @admin.display(description=_("reason"), ordering="reason")
    def reason_text(self, letter: DeadLetter) -> str:
        return label_of(letter.reason)

    @admin.display(description=_("error class"))
    def error_name(self, letter: DeadLetter) -> SafeString:
        return format_html(
            '<span title="{}">{}</span>', letter.error_class, letter.error_class.rpartition(".")[2]
        )

    @admin.display(description=_("replay"))
    def replay(self, letter: DeadLetter) -> str:
        return str(letter.replay_number)

    @admin.display(description=_("age"), ordering="failed_at")
    def age(self, letter: DeadLetter) -> SafeString:
        return format_html(
            '<time datetime="{}" title="{}">{}</time>',
            letter.failed_at.isoformat(),
            letter.failed_at.isoformat(sep=" ", timespec="seconds"),
            timesince(letter.failed_at, depth=1),
        )

    @admin.display(description=_("failed"))
    def failed(self, letter: DeadLetter) -> SafeString:
        return format_html(
            "{} ({})",
            letter.failed_at.isoformat(sep=" ", timespec="seconds"),
            gettext("%(age)s ago") % {"age": timesince(letter.failed_at)},
        )

    @admin.display(description=_("reason"))
    def reason_explained(self, letter: DeadLetter) -> SafeString:
        return format_html("{}<br>{}", label_of(letter.reason), explanation_of(letter.reason))

    @admin.display(description=_("error"))
    def error(self, letter: DeadLetter) -> SafeString:
        return format_html('<pre class="dlq-text">{}: {}</pre>', letter.error_class, letter.error_message)

    @admin.display(description=_("timeline"))
    def timeline(self, letter: DeadLetter) -> str:
        attempts = list(letter.attempts.order_by("-number"))
        return self._part("timeline", attempts=attempts, not_kept=attempts_not_kept(attempts))

    @admin.display(description=_("arguments"))
    def arguments(self, letter: DeadLetter) -> str:
        if not _may_be_shown(letter):
            return gettext("Hidden: seeing the payload needs the permission to view it.")
        payload = visible_payload(letter)
        return self._part("shown", problem=payload.problem, shown=payload.arguments, empty=gettext("none"))

    @admin.display(description=_("headers"))
    def headers(self, letter: DeadLetter) -> str:
        if not _may_be_shown(letter):
            return gettext("Hidden: seeing the payload needs the permission to view it.")
        payload = visible_payload(letter)
        return self._part("shown", problem="", shown=payload.headers, empty=gettext("none"))

    @admin.display(description=_("workflow"))
    def workflow(self, letter: DeadLetter) -> str:
        return self._part("workflow", canvas=letter.canvas, any=any(letter.canvas.values()))

    @admin.display(description=_("replay of"))
    def original(self, letter: DeadLetter) -> str:
        if letter.replay_of_id is None:
            return "-"
        before = DeadLetter.objects.filter(pk=letter.replay_of_id).first()
        if before is None:
            return gettext("%(id)s (deleted)") % {"id": letter.replay_of_id}
        return self._link(before)

    @admin.display(description=_("failed again as"))
    def followers(self, letter: DeadLetter) -> str:
        after = DeadLetter.objects.filter(replay_of_id=letter.pk).order_by("stored_at")
        return format_html_join(mark_safe("<br>"), "{}", ((self._link(each),) for each in after)) or "-"

    @admin.display(description=_("in operations"))
    def in_operations(self, letter: DeadLetter) -> str:
        items = items_of(letter.asked_by, letter, self.admin_site.name)  # type: ignore[attr-defined]
        return self._part("operations", items=items, empty=_("No operation has had it."), is_origin=False)

    @admin.display(description=_("came back from"))
    def came_from(self, letter: DeadLetter) -> str:
        items = origins_of(letter.asked_by, letter, self.admin_site.name)  # type: ignore[attr-defined]
        return self._part("operations", items=items, empty=_("No operation sent it."), is_origin=True)

    @admin.display(description=_("versions"))
    def version_list(self, letter: DeadLetter) -> str:
        return ", ".join(f"{name} {version}" for name, version in sorted(letter.versions.items())) or "-"

    @admin.display(description=_("group"))
    def cause(self, letter: DeadLetter) -> str | SafeString:
        group = LetterGroup.objects.filter(pk=letter.group_id).first() if letter.group_id else None
        if group is None:
            return gettext("Not grouped yet.")
        address = reverse(
            "admin:dlq_lettergroup_change", args=[quote(group.pk)], current_app=self.admin_site.name
        )
        return format_html('<a href="{}">{}</a> ({})', address, group, group.get_state_display())

    def _link(self, letter: DeadLetter) -> SafeString:
        return format_html(
            '<a href="{}">{}</a> ({})', self._address(letter.pk), letter.task_id, letter.get_state_display()
        )

    def _address(self, letter_id: UUID, view: str = "change") -> str:
        return reverse(f"admin:dlq_deadletter_{view}", args=[letter_id], current_app=self.admin_site.name)

    def _part(self, name: str, **context: Any) -> SafeString:
        return render_to_string(f"admin/dlq/deadletter/{name}.html", context)

    def _has(self, request: HttpRequest, codename: str) -> bool:
        return request.user.has_perm(f"{self.opts.app_label}.{codename}")


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _may_be_shown(letter: DeadLetter) -> bool:
    # Set by get_object alone: a letter that came another way shows nothing.
    return getattr(letter, "payload_may_be_shown", False)
