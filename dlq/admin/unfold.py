"""For projects whose admin is django-unfold: a mixin that brings what it lacks. Imports none of it."""

from __future__ import annotations

__all__ = ["UnfoldMixin"]


class UnfoldMixin:
    """First of the bases, before ours and `unfold.admin.ModelAdmin`: that admin's colours and buttons."""

    class Media:
        css = {"all": ("dlq/unfold.css",)}
