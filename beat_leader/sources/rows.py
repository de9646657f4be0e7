"""A row of django-celery-beat as an Entry. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from celery import Celery, schedules
from django.conf import settings
from django.utils import timezone
from django_celery_beat.clockedschedule import clocked
from django_celery_beat.tzcrontab import TzAwareCrontab
from kombu.utils.json import loads

from ..due import check
from ..entry import Entry

__all__ = ["COLUMNS", "HISTORY", "ID", "NAME", "WHEN", "entry_of", "is_zone_aware", "when_of"]

_OWN = (
    "name",
    "id",
    "task",
    "args",
    "kwargs",
    "queue",
    "exchange",
    "routing_key",
    "priority",
    "headers",
    "expires",
    "expire_seconds",
    "one_off",
    "start_time",
)
_WHEN = (
    "interval_id",
    "interval__every",
    "interval__period",
    "crontab_id",
    "crontab__minute",
    "crontab__hour",
    "crontab__day_of_week",
    "crontab__day_of_month",
    "crontab__month_of_year",
    "zone",
    "solar_id",
    "solar__event",
    "solar__latitude",
    "solar__longitude",
    "clocked_id",
    "clocked__clocked_time",
)
COLUMNS = (*_OWN, *_WHEN)
"""What is read of each row each time; `zone` is the name of the crontab's, which may be none."""

HISTORY = ("last_run_at", "date_changed")
"""What is read of those that are new or say something else."""

NAME, ID = 0, 1
WHEN = slice(len(_OWN), len(_OWN) + len(_WHEN))
"""Where in a row it says when it is due."""

_ROUTING = ("queue", "exchange", "routing_key", "priority")


def when_of(part: tuple[Any, ...], app: Celery) -> Any:
    """The schedule object of the part WHEN of a row. Raises whatever the row provokes."""
    said = dict(zip(_WHEN, part, strict=True))
    if said["interval_id"] is not None:
        every = timedelta(**{said["interval__period"]: said["interval__every"]})
        return _checked(schedules.schedule(every, app=app))
    if said["crontab_id"] is not None:
        return _crontab(said, app)
    if said["solar_id"] is not None:
        place = (said["solar__event"], said["solar__latitude"], said["solar__longitude"])
        return schedules.solar(*place, app=app)
    if said["clocked_id"] is not None:
        return clocked(_aware(said["clocked__clocked_time"]), app=app)
    raise ValueError("it has no schedule")


def entry_of(row: tuple[Any, ...], when: Any, history: tuple[Any, Any] | None = None) -> Entry:
    """Without its policy, and without an anchor if there is no `history`. Raises ValueError for values that
    django-celery-beat could not send either."""
    said = dict(zip(COLUMNS, row, strict=True))
    starts, ends = said["start_time"], said["expires"]
    return Entry(
        name=said["name"],
        task=said["task"],
        when=when,
        args=tuple(_json(said, "args", "[]", list)),
        kwargs=_json(said, "kwargs", "{}", dict),
        options=_options(said),
        starts=None if starts is None else _stamp(starts),
        ends=None if ends is None else _stamp(ends),
        one_off=said["one_off"],
        anchor=None if history is None else _anchor(*history, when),
        row_id=said["id"],
        kept="database",
    )


def is_zone_aware() -> bool:
    """As django-celery-beat reads its setting."""
    return bool(getattr(settings, "DJANGO_CELERY_BEAT_TZ_AWARE", True))


def _crontab(said: Mapping[str, Any], app: Celery) -> Any:
    fields = {name: said[f"crontab__{name}"] for name in ("minute", "hour", "day_of_week", "day_of_month")}
    fields["month_of_year"] = said["crontab__month_of_year"]
    if not is_zone_aware():
        return schedules.crontab(**fields, app=app)
    return TzAwareCrontab(**fields, tz=ZoneInfo(said["zone"]), app=app)


def _checked(when: Any) -> Any:
    check(when)
    return when


def _options(said: Mapping[str, Any]) -> dict[str, Any]:
    options = {name: said[name] for name in _ROUTING if said[name] not in (None, "")}
    expires = said["expires"] or said["expire_seconds"]
    if expires:
        options["expires"] = _aware(expires) if isinstance(expires, datetime) else expires
    headers = _json(said, "headers", "{}", dict)
    return {**options, "headers": headers} if headers else options


def _json(said: Mapping[str, Any], column: str, empty: str, kind: type) -> Any:
    text = said[column] or empty
    if text == empty:
        return kind()
    try:
        value = loads(text)
    except Exception as exc:
        raise ValueError(f"its {column} cannot be read: {exc}") from exc
    if not isinstance(value, kind):
        raise ValueError(f"its {column} are a {type(value).__name__}, not a {kind.__name__}")
    return value


def _anchor(last_run_at: datetime | None, date_changed: datetime, when: Any) -> float:
    """As django-celery-beat: its last run, else when it was made or changed."""
    if last_run_at is not None:
        return _aware_run(last_run_at).timestamp()
    changed = _stamp(date_changed)
    # One whose time was over when it was made is due at once.
    return min(changed, when.clocked_time.timestamp() - 0.001) if isinstance(when, clocked) else changed


def _stamp(moment: datetime) -> float:
    return _aware(moment).timestamp()


def _aware(moment: datetime) -> datetime:
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


def _aware_run(moment: datetime) -> datetime:
    if timezone.is_naive(moment) and not is_zone_aware():
        return moment.replace(tzinfo=UTC)
    return _aware(moment)
