"""Filters by groups and of groups: a fixed number of queries, each over groups and never over letters."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count, Model, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from dlq.access import VIEW, groups_for
from dlq.groups.figures import TODO
from dlq.groups.states import GroupState
from dlq.models import LetterGroup

__all__ = ["FACET_FILTERS", "GroupFilter", "GroupStateFilter", "GroupTaskFilter", "OwnerFilter"]

_MOST_CHOICES = 50
_TODO_STATES = (GroupState.OPEN, GroupState.REGRESSED)


def _by_state(groups: QuerySet[LetterGroup]) -> dict[str, int]:
    counted = groups.order_by().values_list("state").annotate(groups=Count("pk"))
    return {state.value: 0 for state in GroupState} | dict(counted)


class GroupStateFilter(admin.SimpleListFilter):
    """Each choice with its number of groups; the first one is what somebody should look at."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, Any]]:
        groups = _by_state(model_admin.get_queryset(request))
        labels = LetterGroup._meta.get_field("state").flatchoices
        todo = sum(groups[state] for state in _TODO_STATES)
        return [
            (TODO, _("to do (%(count)d)") % {"count": todo}),
            *((value, f"{label} ({groups[value]})") for value, label in labels),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        value = self.value()
        if value is None:
            return queryset
        return queryset.filter(state__in=_TODO_STATES if value == TODO else [value])


class GroupTaskFilter(admin.SimpleListFilter):
    title = _("task")
    parameter_name = "task_name"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, Any]]:
        groups = model_admin.get_queryset(request).order_by("task_name")
        names = list(groups.values_list("task_name", flat=True).distinct()[:_MOST_CHOICES])
        chosen = self.value()
        return [(name, name) for name in dict.fromkeys([*names, *([chosen] if chosen else [])])]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        value = self.value()
        return queryset if value is None else queryset.filter(task_name=value)


class OwnerFilter(admin.SimpleListFilter):
    """The user who looks first, then nobody, then the others."""

    title = _("owner")
    parameter_name = "owner"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, Any]]:
        me = request.user.get_username()
        groups = model_admin.get_queryset(request).exclude(owner="").order_by("owner")
        owners = groups.values_list("owner", flat=True).distinct()[:_MOST_CHOICES]
        return [
            (me, _("me (%(name)s)") % {"name": me}),
            ("", _("nobody")),
            *((owner, owner) for owner in owners if owner != me),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        value = self.value()
        return queryset if value is None else queryset.filter(owner=value)


class _FacetFilter(admin.SimpleListFilter):
    """Groups that had a letter with this value. Reached from other pages: it offers no values itself."""

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, Any]]:
        chosen = self.value()
        return [] if chosen is None else [(chosen, chosen or _("(none)"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        value = self.value()
        if value is None:
            return queryset
        # A group has each value once: no row comes twice.
        return queryset.filter(facets__facet=self.parameter_name, facets__value=value)


class _ErrorClassFacet(_FacetFilter):
    title = _("error class")
    parameter_name = "error_class"


class _QueueFacet(_FacetFilter):
    title = _("queue")
    parameter_name = "queue"


class _ReleaseFacet(_FacetFilter):
    title = _("release")
    parameter_name = "release"


class _WorkerFacet(_FacetFilter):
    title = _("worker")
    parameter_name = "worker"


FACET_FILTERS = (_ErrorClassFacet, _QueueFacet, _ReleaseFacet, _WorkerFacet)


class GroupFilter(admin.SimpleListFilter):
    """Of letters: those of one group. Reached from its page: a list of thousands helps nobody."""

    title = _("group")
    parameter_name = "group"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, Any]]:
        chosen = self.value()
        if not chosen:
            return []
        group = groups_for(request.user, VIEW).filter(pk=chosen).first()
        return [(chosen, str(group) if group else chosen)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        value = self.value()
        return queryset if value is None else queryset.filter(group_id=value)
