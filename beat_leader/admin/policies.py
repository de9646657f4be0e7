"""Policies of schedules: what each asks for beside its due times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest

from ..models import SchedulePolicy

if TYPE_CHECKING:
    from typing import TypeAlias

    _ModelAdmin: TypeAlias = admin.ModelAdmin[SchedulePolicy]
else:  # Generic in the stubs only.
    _ModelAdmin = admin.ModelAdmin

__all__ = ["SchedulePolicyAdmin"]


@admin.register(SchedulePolicy)
class SchedulePolicyAdmin(_ModelAdmin):
    """Who may only look does not see the ping URL: whoever has it can feign a success."""

    list_display = ("schedule", "misfire", "grace_seconds", "overlap", "expires")
    list_filter = ("misfire", "overlap")
    search_fields = ("schedule",)
    fields = (
        "schedule",
        ("misfire", "most"),
        ("misfire_seconds", "grace_seconds"),
        ("overlap", "overlap_seconds"),
        "expires",
        "ping",
    )

    def get_fields(self, request: HttpRequest, obj: SchedulePolicy | None = None) -> Any:
        fields = super().get_fields(request, obj)
        if self.has_change_permission(request, obj) or (obj is None and self.has_add_permission(request)):
            return fields
        return [each for each in fields if each != "ping"]
