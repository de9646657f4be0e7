"""Filters of the list that stay fast with a million letters."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from dlq.access import VIEW, allowed
from dlq.reasons import label_of

from .distinct import distinct_values

__all__ = [
    "AgeFilter",
    "ErrorClassFilter",
    "QueueFilter",
    "ReasonFilter",
    "TaskFilter",
    "VerdictFilter",
    "age_lookups",
]

_YOUNGER = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
_OLDER = {"over_week": timedelta(days=7), "over_month": timedelta(days=30)}


class _IndexedValuesFilter(admin.SimpleListFilter):
    """By the whole value of the field that the parameter names."""

    @property
    def field(self) -> str:
        return str(self.parameter_name)

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, Any]]:
        letters = allowed(request.user, VIEW, model_admin.model._default_manager.get_queryset())
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


def age_lookups(value: str, now: datetime) -> dict[str, datetime]:
    """What a choice of the age filter asks of the database."""
    if value in _YOUNGER:
        return {"failed_at__gte": now - _YOUNGER[value]}
    return {"failed_at__lt": now - _OLDER[value]} if value in _OLDER else {}


class AgeFilter(admin.SimpleListFilter):
    """By the time of failure. A date hierarchy would group every row by day at each view."""

    title = _("age")
    parameter_name = "age"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, Any]]:
        return [
            ("hour", _("last hour")),
            ("day", _("last 24 hours")),
            ("week", _("last 7 days")),
            ("over_week", _("older than 7 days")),
            ("over_month", _("older than 30 days")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        return queryset.filter(**age_lookups(self.value() or "", timezone.now()))
