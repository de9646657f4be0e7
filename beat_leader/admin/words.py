"""What the pages say of times, states and schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import Celery
from celery.schedules import crontab
from celery.utils.time import humanize_seconds
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from hardening.core.apps import celery_app, loaded_app

from ..entry import Entry, Misfire, Policy
from ..ticks import Outcome, State

__all__ = [
    "END_WORDS",
    "OUTCOME_WORDS",
    "STATE_WORDS",
    "duration",
    "policy_words",
    "the_app",
    "when_words",
]

STATE_WORDS: Mapping[State, str | Promise] = {
    State.DUE: _("to be sent"),
    State.SENT: _("sent"),
    State.SKIPPED: _("skipped"),
    State.MISSED: _("missed"),
}
OUTCOME_WORDS: Mapping[Outcome, str | Promise] = {
    Outcome.UNKNOWN: _("nothing heard yet"),
    Outcome.STARTED: _("started"),
    Outcome.SUCCEEDED: _("succeeded"),
    Outcome.DEAD: _("dead letter"),
    Outcome.CANCELLED: _("cancelled"),
}
END_WORDS: Mapping[str, str | Promise] = {
    "resigned": _("resigned"),
    "stuck": _("resigned, its tick hung"),
    "unable": _("resigned, it could not read or write"),
    "lost": _("lost its lease"),
}


def the_app() -> Celery:
    """The project's app with its tasks. Raises NoCeleryApp."""
    return loaded_app(celery_app())


def duration(seconds: float) -> str:
    """In the largest units that say enough: `3.2 s`, `5 min`, `2 h 10 min`."""
    if seconds < 60:
        return gettext("%(seconds).1f s") % {"seconds": max(0.0, seconds)}
    minutes = int(seconds // 60)
    if minutes < 60:
        return gettext("%(minutes)d min") % {"minutes": minutes}
    return gettext("%(hours)d h %(minutes)d min") % {"hours": minutes // 60, "minutes": minutes % 60}


def when_words(entry: Entry) -> str:
    """When it is due, with the zone of a crontab that has its own."""
    when: Any = entry.when
    if isinstance(when, crontab):
        # Its five fields, as `<crontab: 0 3 * * * (m/h/dM/MY/d)>` has them.
        fields = str(when).removeprefix("<crontab: ").partition(" (")[0]
        return f"{fields} {getattr(when, 'tz', None) or ''}".strip()
    every = getattr(when, "run_every", None)
    if every is not None and type(when).__name__ == "schedule":
        return gettext("every %(interval)s") % {"interval": humanize_seconds(every.total_seconds())}
    return str(when)


def policy_words(policy: Policy) -> list[str]:
    """What it asks for beyond the defaults."""
    usual, said = Policy(), []
    if policy.misfire is Misfire.SKIP:
        said.append(gettext("late ones are skipped"))
    elif policy.misfire is Misfire.ALL:
        said.append(gettext("up to %(most)d late ones are sent") % {"most": policy.most})
    if policy.grace_seconds is not None:
        said.append(gettext("grace %(time)s") % {"time": duration(policy.grace_seconds)})
    if not policy.overlap:
        said.append(gettext("no overlap"))
    if policy.expires is not usual.expires:
        said.append(gettext("messages do not expire"))
    if policy.ping:
        said.append(gettext("pinged"))
    return said
