"""What every page of dlq is: rows are looked at and acted on, never added, changed or deleted."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

__all__ = ["ReadOnly"]


class ReadOnly:
    """For a ModelAdmin, named before it."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody has it, nor the two below."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Actions ask for permissions of their own."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """What is purged is purged by its own page."""
        return False
