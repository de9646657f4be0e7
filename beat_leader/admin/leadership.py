"""Who leads, who stands by, what is wrong, and every term; a button that asks the leader to resign.

Its model is the table of terms, for the section, the permissions and the log. What it shows comes from the
stores in use, which may be Redis; rows are never shown, made or changed here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from hardening.core.errors import HardeningError
from hardening.core.one_page import OnePage, moment

from ..choice import chosen_lock, chosen_register
from ..models import BeatTerm
from ..register import Sign, TermRecord
from ..status import BeatStatus, beat_status
from .words import END_WORDS, duration, the_app

__all__ = ["LeadershipAdmin"]

logger = logging.getLogger("beat_leader")

_TERMS = 50
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beat:
    sign: Sign
    at: datetime | None
    age: str
    lag: str
    skew: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Term:
    record: TermRecord
    began: datetime | None
    ended: datetime | None
    end: str | Promise
    first_after: str
    leads: bool


@admin.register(BeatTerm)
class LeadershipAdmin(OnePage):
    """Without the permission to resign, nothing but GET is answered."""

    page_template = "admin/beat_leader/leadership.html"
    page_title = _("Leader and terms")
    button = "resign"

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """To ask the leader to resign. Who may not see the page may not act on it."""
        return self.has_view_permission(request) and request.user.has_perm("beat_leader.resign_leader")

    def page(self, request: HttpRequest) -> dict[str, Any]:
        try:
            status = beat_status(the_app(), terms=_TERMS)
        except HardeningError as exc:
            return {"unreachable": str(exc)}
        return {
            "status": status,
            "now": moment(status.now),
            "leader": None if status.leader is None else _beat(status, status.leader),
            "since": next(
                (moment(each.began) for each in status.terms if each.epoch == status.standing.epoch), None
            ),
            "standbys": [_beat(status, each) for each in status.standbys],
            "silent": [_beat(status, each) for each in status.silent],
            "terms": [_term(status, each) for each in status.terms],
            "reason_length": _LONGEST_REASON,
        }

    def pressed(self, request: HttpRequest) -> HttpResponse:
        """Asks the leader of the term that the page showed, and of no later one."""
        reason = request.POST.get("reason", "").strip()[:_LONGEST_REASON]
        try:
            epoch = int(request.POST.get("epoch", ""))
        except ValueError:
            epoch = 0
        if not epoch or not reason:
            self.message_user(request, gettext("Nothing was asked: say why."), messages.ERROR)
        else:
            self._ask(request, epoch, reason)
        return HttpResponseRedirect(self.page_url)

    def _ask(self, request: HttpRequest, epoch: int, reason: str) -> None:
        who = request.user.get_username()
        try:
            app = the_app()
            standing = chosen_lock(app).look()
            if not standing.holder or standing.epoch != epoch:
                self.message_user(request, gettext("Nothing was asked: that term is over."), messages.WARNING)
                return
            chosen_register(app).ask_to_resign(epoch, who)
        except HardeningError as exc:
            text = gettext("The store did not confirm it: %(why)s") % {"why": exc}
            self.message_user(request, text, messages.ERROR)
            return
        logger.warning("%s asked %s to resign: %s", who, standing.holder, reason, extra={"term": epoch})
        LogEntry.objects.create(
            user_id=cast("int", request.user.pk),  # The view let nobody else in.
            content_type=ContentType.objects.get_for_model(BeatTerm),
            object_id=str(epoch),
            object_repr=f"{standing.holder}, {epoch}"[:200],
            action_flag=CHANGE,
            change_message=f"Asked to resign: {reason}",
        )
        said = gettext("%(holder)s was asked to resign; another Beat takes over within seconds.")
        self.message_user(request, said % {"holder": standing.holder}, messages.SUCCESS)


def _beat(status: BeatStatus, sign: Sign) -> _Beat:
    skew = sign.skew_seconds
    return _Beat(
        sign=sign,
        at=moment(sign.at),
        age=duration(status.age(sign)),
        lag=duration(sign.lag_seconds),
        skew="" if skew is None else f"{skew:+.2f} s",
    )


def _term(status: BeatStatus, record: TermRecord) -> _Term:
    first = record.first_sent
    return _Term(
        record=record,
        began=moment(record.began),
        ended=moment(record.ended),
        end=END_WORDS.get(record.end, record.end),
        first_after="" if first is None else duration(max(0.0, first - record.began)),
        leads=bool(status.standing.holder) and record.epoch == status.standing.epoch,
    )
