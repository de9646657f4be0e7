"""The admin's page of delayed tasks: looks, and lets an operator cancel.

Its model is the table of delayed tasks, for the section, the permissions and the log. What it shows comes
from the store in use, which may be Redis; rows are never shown, made or changed here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import urlencode
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from hardening.conf import load_settings
from hardening.core.apps import NoCeleryApp, celery_app
from hardening.core.errors import HardeningError
from hardening.core.one_page import OnePage
from hardening.retries.durations import text_of

from .cancelling import Cancellation, cancel_delayed
from .entry import Cancelled, Delayed, shown
from .models import DelayedTask
from .store import chosen_delayed_store

__all__ = ["DelayedTaskAdmin"]

logger = logging.getLogger("hardening")

PER_PAGE = 100
_MOST_RECORDS = 20
_MOST_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    entry: Delayed
    due: datetime | None
    due_in: str
    parked: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    record: Cancelled
    at: datetime | None
    due: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the page shows. With a problem, nothing else is known."""

    problem: str = ""
    count: int = 0
    page: int = 1
    pages: int = 1
    lines: tuple[_Line, ...] = ()
    records: tuple[_Record, ...] = ()


@admin.register(DelayedTask)
class DelayedTaskAdmin(OnePage):
    """The delayed tasks, and a button that cancels those that are ticked."""

    page_template = "admin/hardening/delayedtask/delayed.html"
    page_title = _("Delayed tasks")
    button = "cancel"

    def page(self, request: HttpRequest) -> dict[str, Any]:
        query, page = request.GET.get("q", "").strip(), _number(request.GET.get("p", ""))
        return {"found": _seen(query, page), "query": query}

    def pressed(self, request: HttpRequest) -> HttpResponse:
        """Cancels what was ticked, and logs who did it."""
        ids = list(dict.fromkeys(request.POST.getlist("id")))[:_MOST_AT_ONCE]
        if not ids:
            self.message_user(request, gettext("Nothing was chosen. Nothing was changed."), messages.ERROR)
        else:
            self._cancel(request, ids)
        page = self.page_url
        query, number = request.POST.get("q", ""), _number(request.POST.get("p", ""))
        kept = {name: value for name, value in (("q", query), ("p", str(number))) if value not in ("", "1")}
        return HttpResponseRedirect(f"{page}?{urlencode(kept)}" if kept else page)

    def _cancel(self, request: HttpRequest, ids: list[str]) -> None:
        try:
            done = cancel_delayed(celery_app(), ids, by=request.user.get_username())
        except (HardeningError, NoCeleryApp) as exc:
            done = Cancellation(problem=str(exc))
        self._log(request, done)
        if done.problem:
            text = gettext("The store did not confirm every cancellation, see below: %(why)s")
            self.message_user(request, text % {"why": done.problem}, messages.ERROR)
        if done.cancelled:
            count = len(done.cancelled)
            text = ngettext("%(count)d task was cancelled.", "%(count)d tasks were cancelled.", count)
            self.message_user(request, text % {"count": count}, messages.SUCCESS)
        if done.missing:
            count = len(done.missing)
            text = ngettext(
                "%(count)d task was not there any more: it was released or cancelled before.",
                "%(count)d tasks were not there any more: they were released or cancelled before.",
                count,
            )
            self.message_user(request, text % {"count": count}, messages.WARNING)
        if done.untold:
            text = gettext("The result backend could not be told, so that results stay pending: %(why)s")
            self.message_user(request, text % {"why": done.untold}, messages.WARNING)

    def _log(self, request: HttpRequest, done: Cancellation) -> None:
        kind = ContentType.objects.get_for_model(DelayedTask)
        user = cast("int", request.user.pk)  # The view let nobody else in.
        LogEntry.objects.bulk_create(
            LogEntry(
                user_id=user,
                content_type=kind,
                object_id=record.id,
                object_repr=f"{record.task}[{record.task_id}]"[:200],
                action_flag=CHANGE,
                change_message="Cancelled.",
            )
            for record in done.cancelled
        )


def _seen(query: str, page: int) -> _Found:
    try:
        store = chosen_delayed_store(celery_app(), load_settings()[0].delayed_rules)
        count = store.count()
        pages = 1 if query else max(1, -(-count // PER_PAGE))
        page = min(page, pages)
        if query:
            entries = store.find(shown(query))
        else:
            entries = store.page(offset=(page - 1) * PER_PAGE, limit=PER_PAGE)
        records = store.cancellations(limit=_MOST_RECORDS)
    except (HardeningError, NoCeleryApp) as exc:
        return _Found(problem=str(exc))
    now = datetime.now(UTC).timestamp()
    return _Found(
        count=count,
        page=page,
        pages=pages,
        lines=tuple(_line(entry, now) for entry in entries),
        records=tuple(_Record(record=each, at=_moment(each.at), due=_moment(each.due)) for each in records),
    )


def _line(entry: Delayed, now: float) -> _Line:
    return _Line(
        entry=entry,
        due=_moment(entry.due),
        due_in=text_of(entry.due - now) if entry.due > now else "",
        parked=_moment(entry.parked_at),
    )


def _moment(seconds: float) -> datetime | None:
    """None for a time that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text) else 1
