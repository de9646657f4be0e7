"""OnePage: an admin section that is one page with one button, over what a store has and not over rows.

Its model gives it a section, permissions and a log. Rows are never shown, made or changed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.forms import Media
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.functional import Promise

if TYPE_CHECKING:
    from typing import TypeAlias

    _ModelAdmin: TypeAlias = admin.ModelAdmin[Model]
else:  # Generic in the stubs only.
    _ModelAdmin = admin.ModelAdmin

__all__ = ["OnePage", "moment"]

_MEDIA = Media(css={"all": ("hardening/admin.css",)})


class OnePage(_ModelAdmin):
    """Without the permission to change, nothing but GET is answered; the button is POST only."""

    page_template = ""
    page_title: str | Promise = ""
    button = ""
    """The last part of the button's URL, and of its name."""

    def page(self, request: HttpRequest) -> dict[str, Any]:
        """What the template shows."""
        raise NotImplementedError

    def pressed(self, request: HttpRequest) -> HttpResponse:
        """Do what the button says. Whoever comes here may."""
        raise NotImplementedError

    @property
    def page_url(self) -> str:
        """Where the page is."""
        return reverse(f"admin:{self._named('changelist')}", current_app=self.admin_site.name)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.has_perm(f"{self.opts.app_label}.view_{self.opts.model_name}")

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """To press the button. Who may not see the page may not act on it."""
        change = f"{self.opts.app_label}.change_{self.opts.model_name}"
        return self.has_view_permission(request) and request.user.has_perm(change)

    def get_urls(self) -> list[URLPattern]:
        """The page and its button; no view of rows."""
        view = self.admin_site.admin_view
        return [
            path("", view(self.changelist_view), name=self._named("changelist")),
            path(f"{self.button}/", view(self.button_view), name=self._named(self.button)),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(("GET", "HEAD"))
        context = {
            **self.frame(request, self.page_title),
            **self.page(request),
            "may_change": self.has_change_permission(request),
            **(extra_context or {}),
        }
        return TemplateResponse(request, self.page_template, context)

    def frame(self, request: HttpRequest, title: str | Promise) -> dict[str, Any]:
        """What the templates of all pages need."""
        request.current_app = self.admin_site.name
        return {
            **self.admin_site.each_context(request),
            "title": title,
            "subtitle": None,
            "opts": self.opts,
            "media": _MEDIA,
        }

    def button_view(self, request: HttpRequest) -> HttpResponse:
        """The button was pressed."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(("POST",))
        return self.pressed(request)

    def _named(self, what: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{what}"


def moment(seconds: float | None) -> datetime | None:
    """A time of a store's; None for none, and for one that no calendar has."""
    try:
        return None if not seconds else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
