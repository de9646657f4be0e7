"""Schedules: when each is due next and what became of its last due time; and the history of due times.

Its model is the table of due times, for the section and the permission. What it shows comes from the stores
in use, which may be Redis; nothing is changed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.functional import Promise
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _

from hardening.core.errors import HardeningError
from hardening.core.one_page import OnePage, moment

from ..choice import chosen_register, chosen_ticks
from ..entry import SourceUnavailable
from ..models import TickRow
from ..outlook import Outlook, outlook_of
from ..sources import chosen_source
from ..ticks import Outcome, State, Tick
from .words import OUTCOME_WORDS, STATE_WORDS, duration, policy_words, the_app, when_words

__all__ = ["SchedulesAdmin"]

PER_PAGE = 100
_LOOKED_AT = 2_000
_TERMS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One due time in words."""

    tick: Tick
    due: datetime | None
    first: datetime | None
    sent: datetime | None
    started: datetime | None
    ended: datetime | None
    state: str | Promise
    outcome: str | Promise
    late: str
    took: str
    letters: str
    holder: str = ""
    """Of the epoch, as far back as terms are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One schedule in words."""

    row: Outlook
    when: str
    policy: list[str]
    next_due: datetime | None
    overdue: str
    last: _Row | None


@admin.register(TickRow)
class SchedulesAdmin(OnePage):
    """Two pages that are looked at."""

    page_template = "admin/beat_leader/schedules.html"
    page_title = _("Schedules")
    history_template = "admin/beat_leader/history.html"

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_urls(self) -> list[URLPattern]:
        """No button: the history has its place."""
        view = self.admin_site.admin_view
        return [
            path("", view(self.changelist_view), name=self._named("changelist")),
            path("history/", view(self.due_times_view), name=self._named("due_times")),
        ]

    def page(self, request: HttpRequest) -> dict[str, Any]:
        query = request.GET.get("q", "").strip()
        try:
            app = the_app()
            entries = chosen_source(app).entries()
            names = sorted(name for name in entries if query.lower() in name.lower())
            number = _page_number(request, len(names))
            shown = names[(number - 1) * PER_PAGE : number * PER_PAGE]
            ticks = chosen_ticks(app)
            rows = outlook_of(
                [entries[name] for name in shown],
                ticks.cursors(),
                ticks.last(shown),
                chosen_register(app).now(),
                app.timezone,
            )
            lines = [_line(each) for each in rows]
        except (HardeningError, SourceUnavailable) as exc:
            return {"unreachable": str(exc), "query": query}
        return {
            "lines": lines,
            "query": query,
            "count": len(names),
            "page_number": number,
            "pages": max(1, -(-len(names) // PER_PAGE)),
        }

    def due_times_view(self, request: HttpRequest) -> HttpResponse:
        """Due times, the latest first."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(("GET", "HEAD"))
        context = {
            **self.frame(request, _("Due times")),
            "states": [(each.value, words) for each, words in STATE_WORDS.items()],
            "outcomes": [(each.value or "unknown", words) for each, words in OUTCOME_WORDS.items()],
            **_history(request),
        }
        return TemplateResponse(request, self.history_template, context)


def _history(request: HttpRequest) -> dict[str, Any]:
    asked: dict[str, str] = {name: request.GET.get(name, "") for name in ("schedule", "state", "outcome")}
    try:
        ticks = chosen_ticks(the_app())
        before = _before(request)
        found: list[Tick] = []
        looked_at = 0
        while len(found) < PER_PAGE and looked_at < _LOOKED_AT:
            page = ticks.history(asked["schedule"] or None, limit=PER_PAGE, before=before)
            looked_at += len(page)
            found += [each for each in page if _fits(each, asked["state"], asked["outcome"])]
            if len(page) < PER_PAGE:
                before = None
                break
            before = (page[-1].due_ms, page[-1].schedule)
        if len(found) > PER_PAGE:
            found = found[:PER_PAGE]
            before = (found[-1].due_ms, found[-1].schedule)
        holders = {each.epoch: each.holder for each in chosen_register(the_app()).terms(_TERMS)}
    except HardeningError as exc:
        return {"unreachable": str(exc), "asked": asked}
    older = ""
    if before is not None:
        older = urlencode({**asked, "before": str(before[0]), "after_name": before[1]})
    return {
        "asked": asked,
        "rows": [_row(each, holders.get(each.epoch, "")) for each in found],
        "older": older,
    }


def _before(request: HttpRequest) -> tuple[int, str] | None:
    text = request.GET.get("before", "")
    return (int(text), request.GET.get("after_name", "")) if text.isdecimal() and len(text) < 19 else None


def _fits(tick: Tick, state: str, outcome: str) -> bool:
    return state in ("", tick.state.value) and outcome in ("", tick.outcome.value or "unknown")


def _page_number(request: HttpRequest, count: int) -> int:
    text = request.GET.get("p", "1")
    number = int(text) if text.isdecimal() and len(text) < 9 else 1
    return max(1, min(number, -(-count // PER_PAGE)))


def _line(row: Outlook) -> _Line:
    return _Line(
        row=row,
        when=when_words(row.entry),
        policy=policy_words(row.entry.policy),
        next_due=moment(row.next_due),
        overdue=duration(row.overdue_seconds) if row.overdue_seconds > 1 else "",
        last=None if row.last is None else _row(row.last),
    )


def _row(tick: Tick, holder: str = "") -> _Row:
    took = ""
    if tick.started_ms is not None and tick.ended_ms is not None:
        took = duration(max(0, tick.ended_ms - tick.started_ms) / 1000)
    return _Row(
        tick=tick,
        due=moment(tick.due_ms / 1000),
        first=None if tick.first_ms is None or tick.count < 2 else moment(tick.first_ms / 1000),
        sent=_of(tick.sent_ms),
        started=_of(tick.started_ms),
        ended=_of(tick.ended_ms),
        state=STATE_WORDS[tick.state],
        outcome=OUTCOME_WORDS[tick.outcome] if tick.state is State.SENT else "",
        late="" if tick.late_ms is None else duration(tick.late_ms / 1000),
        took=took,
        letters=_letters(tick),
        holder=holder,
    )


def _of(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else moment(milliseconds / 1000)


def _letters(tick: Tick) -> str:
    """Where its dead letter is, in a project that has dead letters in its admin."""
    if tick.outcome is not Outcome.DEAD or not apps.is_installed("dlq"):
        return ""
    try:
        return f"{reverse('admin:dlq_deadletter_changelist')}?{urlencode({'q': tick.task_id})}"
    except NoReverseMatch:
        return ""
