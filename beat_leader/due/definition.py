"""A digest of when a schedule is due: another one begins a new series of due times."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta, tzinfo
from hashlib import sha256
from typing import Any

from .cron import zone_of_cron
from .kinds import Kind, kind_of
from .values import BadSchedule
from .zones import zone_name

__all__ = ["definition_of"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def definition_of(when: Any, *, zone: tzinfo, starts: float | None = None, name: str = "") -> str:
    """The same in every process and version of Python for a schedule that is due at the same times.

    `zone` as for `next_due`; `starts`: of the entry. A schedule of the project's own class is known by its
    class and its `repr`. Raises BadSchedule, with `name`, and nothing else.
    """
    try:
        parts = [*_OF_KIND[kind_of(when)](when, zone), None if starts is None else round(starts * 1000)]
    except Exception as exc:
        raise BadSchedule(name, f"{type(exc).__name__}: {exc}") from exc
    return sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()[:32]


def _cron(when: Any, zone: tzinfo) -> list[Any]:
    sets = (when.minute, when.hour, when.day_of_week, when.day_of_month, when.month_of_year)
    return ["crontab", *(sorted(each) for each in sets), zone_name(zone_of_cron(when, zone))]


def _interval(when: Any, zone: tzinfo) -> list[Any]:
    relative = [zone_name(zone)] if when.relative else []
    return ["interval", when.run_every // timedelta(microseconds=1), *relative]


def _clocked(when: Any, zone: tzinfo) -> list[Any]:
    return ["clocked", round(when.clocked_time.timestamp() * 1000)]


def _solar(when: Any, zone: tzinfo) -> list[Any]:
    return ["solar", when.event, f"{float(when.lat):.6f}", f"{float(when.lon):.6f}"]


def _own(when: Any, zone: tzinfo) -> list[Any]:
    kind = type(when)
    return ["own", kind.__module__, kind.__qualname__, _ADDRESS.sub("", repr(when))]


_OF_KIND: dict[Kind, Callable[[Any, tzinfo], list[Any]]] = {
    Kind.CRON: _cron,
    Kind.INTERVAL: _interval,
    Kind.CLOCKED: _clocked,
    Kind.SOLAR: _solar,
    Kind.ESTIMATED: _own,
    Kind.ASKED: _own,
}
