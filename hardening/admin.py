"""The admin's page of outages and retry budgets: looks, and lets an operator probe or close an outage.

Its model is the table of shared state, for the section, the permissions and the log. What it shows
comes from the store in use, which may be Redis; the table's rows are never shown, made or changed here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from weakref import WeakSet

from celery import Celery
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .conf import load_settings
from .core.apps import NoCeleryApp, celery_app
from .core.errors import HardeningError
from .core.one_page import OnePage, moment
from .delayed.admin import DelayedTaskAdmin
from .models import State
from .retries.durations import text_of
from .traffic_view import Changed, OutageState, TrafficView, close_outage, probe_now, traffic_view

__all__ = ["DelayedTaskAdmin", "StateAdmin"]

logger = logging.getLogger("hardening")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    run: Callable[[Celery, str], Changed]
    said: str | Promise
    logged: str


_OPERATIONS: Mapping[str, _Operation] = {
    "probe": _Operation(
        run=probe_now,
        said=_("The next task that depends on %(dependency)s is run to see whether it is back."),
        logged="Asked for a probe at once.",
    ),
    "close": _Operation(
        run=close_outage,
        said=_("The outage of %(dependency)s is closed: its tasks run again."),
        logged="Closed the outage.",
    ),
}
_REFUSALS = {
    Changed.NO_OUTAGE: _("Nothing was changed: %(dependency)s is not down any more."),
    Changed.BEING_PROBED: _("Nothing was changed: %(dependency)s is being probed now."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """An outage in words. Times are the store's."""

    state: OutageState
    since: datetime | None
    lasts: str
    wait: str
    next_probe: str
    prober_left: str


@admin.register(State)
class StateAdmin(OnePage):
    """The outages, and buttons that probe or close one."""

    page_template = "admin/hardening/state/outages.html"
    page_title = _("Outages and retry budgets")
    button = "act"

    def page(self, request: HttpRequest) -> dict[str, Any]:
        found = _seen()
        return {
            "found": found,
            "now": moment(found.now),
            "lines": [_line(each, found.now) for each in found.outages],
            "failures": load_settings()[0].outage_rules.failures,
            "over": [(each, text_of(each.view.wait)) for each in found.budgets if each.view.wait > 0],
        }

    def pressed(self, request: HttpRequest) -> HttpResponse:
        """Changes one outage, and logs who did it."""
        operation = _OPERATIONS.get(request.POST.get("operation", ""))
        dependency = request.POST.get("dependency", "")
        if operation is None or not dependency:
            self.message_user(request, gettext("Nothing was chosen. Nothing was changed."), messages.ERROR)
        else:
            self._act(request, operation, dependency)
        return HttpResponseRedirect(self.page_url)

    def _act(self, request: HttpRequest, operation: _Operation, dependency: str) -> None:
        try:
            changed = operation.run(celery_app(), dependency)
        except HardeningError as exc:
            text = gettext("The store did not confirm the change, see below whether it was made: %(why)s")
            self.message_user(request, text % {"why": exc}, messages.ERROR)
            return
        if changed is not Changed.DONE:
            self.message_user(request, _REFUSALS[changed] % {"dependency": dependency}, messages.WARNING)
            return
        logger.warning(
            "dependency %s: %s (%s)",
            dependency,
            operation.logged,
            request.user.get_username(),
            extra={"dependency": dependency, "event": "by_operator"},
        )
        LogEntry.objects.create(
            user_id=cast("int", request.user.pk),  # The view let nobody else in.
            content_type=ContentType.objects.get_for_model(State),
            object_id=dependency,
            object_repr=dependency[:200],
            action_flag=CHANGE,
            change_message=operation.logged,
        )
        self.message_user(request, operation.said % {"dependency": dependency}, messages.SUCCESS)


def _seen() -> TrafficView:
    try:
        app = celery_app()
    except NoCeleryApp as exc:
        return TrafficView(store="unusable", problem=str(exc))
    _import_tasks(app)
    return traffic_view(app)


_imported: WeakSet[Celery] = WeakSet()


def _import_tasks(app: Celery) -> None:
    """Once: a web process may not have imported the tasks whose budgets are to be read."""
    if app in _imported:
        return
    _imported.add(app)
    try:
        app.loader.import_default_modules()
        app.finalize(auto=True)
    # A broken task module must not hide which dependency is down.
    except Exception:
        logger.exception("the tasks could not be imported: the page of outages lacks budgets of some")


def _line(state: OutageState, now: float) -> _Line:
    view = state.view
    left = view.next_probe_at - now
    return _Line(
        state=state,
        since=moment(view.open_since),
        lasts=text_of(max(0.0, now - (view.open_since or now))),
        wait=text_of(view.wait),
        next_probe=text_of(left) if left > 0 else "",
        prober_left=text_of(max(0.0, view.prober_until - now)),
    )
