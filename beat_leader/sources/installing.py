"""Schedules of the code, written to the rows of django-celery-beat as its own scheduler does it.

Only what is new there, or differs: the rows' date of change, and what the admin says of `enabled`, stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import tzinfo
from typing import Any

from celery import Celery
from django.db import DatabaseError
from django_celery_beat.models import PeriodicTask
from django_celery_beat.schedulers import ModelEntry
from kombu.utils.json import dumps, loads

from ..due import definition_of
from ..due.kinds import Kind, kind_of
from ..entry import Entry

__all__ = ["KEPT_OPTIONS", "can_be_kept", "install"]

KEPT_OPTIONS = ("queue", "exchange", "routing_key", "priority", "headers", "expires")
"""What a row has a column for."""

_USUAL = {"task", "schedule", "args", "kwargs", "options", "relative"}
_KEPT = (Kind.CRON, Kind.INTERVAL, Kind.SOLAR, Kind.CLOCKED)


def can_be_kept(entry: Entry) -> bool:
    """Whether a row can say it: not a class of the project's, no part of a second, no function."""
    kind = kind_of(entry.when)
    if kind not in _KEPT:
        return False
    if kind is Kind.INTERVAL and (entry.when.relative or entry.when.run_every.microseconds):
        return False
    try:
        dumps([list(entry.args), dict(entry.kwargs), entry.options.get("headers") or {}])
    except Exception:
        return False
    return True


def install(
    app: Celery, wanted: Iterable[Entry], present: Mapping[str, Entry | None], zone: tzinfo
) -> dict[str, str]:
    """`present`: what the rows say, enabled or not; None: nothing that can be read. Returns the names of
    those that were not written, and why. Raises DatabaseError."""
    failed = {}
    for entry in wanted:
        extra = _extra(app, entry.name)
        try:
            if not _same(entry, present.get(entry.name), extra, zone):
                ModelEntry.from_entry(entry.name, app=app, **_fields(entry), **extra)
        except DatabaseError:
            raise
        except Exception as exc:
            # What a model refuses: a name that is too long, two kinds of end.
            failed[entry.name] = f"{type(exc).__name__}: {exc}"
    return failed


def _fields(entry: Entry) -> dict[str, Any]:
    options = {name: value for name, value in entry.options.items() if name in KEPT_OPTIONS}
    expires = options.pop("expires", None)
    if _is_seconds(expires):
        options["expire_seconds"] = int(expires)
    return {
        "task": entry.task,
        "schedule": entry.when,
        "args": list(entry.args),
        "kwargs": dict(entry.kwargs),
        "options": options,
    }


def _extra(app: Celery, name: str) -> dict[str, Any]:
    """Columns that the code names by themselves, such as `enabled` or `one_off`."""
    said = app.conf.beat_schedule.get(name)
    return {key: said[key] for key in said if key not in _USUAL} if isinstance(said, Mapping) else {}


def _same(entry: Entry, row: Entry | None, extra: Mapping[str, Any], zone: tzinfo) -> bool:
    if row is None or row.task != entry.task:
        return False
    if _plain(entry) != (list(row.args), dict(row.kwargs), _options(row)):
        return False
    if definition_of(row.when, zone=zone) != definition_of(entry.when, zone=zone):
        return False
    return not extra or PeriodicTask.objects.filter(name=entry.name, **extra).exists()


def _plain(entry: Entry) -> tuple[Any, Any, dict[str, Any]]:
    args, kwargs, headers = loads(
        dumps([list(entry.args), dict(entry.kwargs), entry.options.get("headers") or {}])
    )
    return args, kwargs, {**_options(entry), "headers": headers}


def _options(entry: Entry) -> dict[str, Any]:
    options = entry.options
    expires = options.get("expires")
    return {
        **{name: options.get(name) for name in ("queue", "exchange", "routing_key", "priority")},
        "headers": options.get("headers") or {},
        "expires": int(expires or 0) if _is_seconds(expires) else None,
    }


def _is_seconds(expires: Any) -> bool:
    return isinstance(expires, (int, float)) and not isinstance(expires, bool) and expires > 0
