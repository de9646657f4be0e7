"""Filters of the list that stay fast with a million letters."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from dlq.reasons import label_of

__all__ = [
    "AgeFilter",
    "ErrorClassFilter",
    "QueueFilter",
    "ReasonFilter",
    "TaskFilter",
    "VerdictFilter",
    "distinct_values",
]

_MOST_CHOICES = 50


def distinct_values(queryset: QuerySet[Any], field: str, *, limit: int = _MOST_CHOICES) -> Iterator[str]:
    """The first distinct values, each found by one seek in the index: DISTINCT would read every row."""
    steps = queryset.order_by(field).values_list(field, flat=True)
    found = list(steps[:1])
    while found and limit > 0:
        yield found[0]
        limit -= 1
        found = list(steps.filter(**{f"{field}__gt": found[0]})[:1])


class _IndexedValuesFilter(admin.SimpleListFilter):
    """By the whole value of the field that the parameter names."""

    @property
    def field(self) -> str:
        return str(self.parameter_name)

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, Any]]:
        letters = model_admin.model._default_manager.get_queryset()
        return [(value, self.label(value)) for value in distinct_values(letters, self.field)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        value = self.value()
        return queryset if value is None else queryset.filter(**{self.field: value})

    def label(self, value: str) -> str | Promise:
        return value or _("(none)")


class TaskFilter(_IndexedValuesFilter):
    title = _("task")
    parameter_name = "task_name"


class QueueFilter(_IndexedValuesFilter):
    title = _("queue")
    parameter_name = "queue"


class ErrorClassFilter(_IndexedValuesFilter):
    title = _("error class")
    parameter_name = "error_class"


class ReasonFilter(_IndexedValuesFilter):
    title = _("reason")
    parameter_name = "reason"

    def label(self, value: str) -> str | Promise:
        return label_of(value)


class VerdictFilter(_IndexedValuesFilter):
    title = _("verdict")
    parameter_name = "verdict"


class AgeFilter(admin.SimpleListFilter):
    """By the time of failure. A date hierarchy would group every row by day at each view."""

    title = _("age")
    parameter_name = "age"

    _younger = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
    _older = {"over_week": timedelta(days=7), "over_month": timedelta(days=30)}

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, Any]]:
        return [
            ("hour", _("last hour")),
            ("day", _("last 24 hours")),
            ("week", _("last 7 days")),
            ("over_week", _("older than 7 days")),
            ("over_month", _("older than 30 days")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        value = self.value() or ""
        if value in self._younger:
            return queryset.filter(failed_at__gte=timezone.now() - self._younger[value])
        if value in self._older:
            return queryset.filter(failed_at__lt=timezone.now() - self._older[value])
        return queryset
