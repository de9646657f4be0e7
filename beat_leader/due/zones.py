"""Times on the wall and moments, in any time zone: from what the zone says of moments alone.

A wall time is a number too: the seconds that a clock in UTC would count until it shows the same.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from celery.utils.time import LocalTimezone

__all__ = ["first_moment", "moments", "next_change", "offset_at", "zone_name", "zone_of"]

_WEST = 15 * 3600
_EAST = 13 * 3600
"""No zone is further from UTC than 14 and 12 hours, and an hour's margin: around a wall time, its moments lie
between."""

_AHEAD = 26 * 3600
"""No clock was set back by more than a day; and two hours' margin."""


def zone_of(app: Any) -> tzinfo:
    """The zone of an app's crontabs, whatever is wrong with its setting `timezone`: UTC then."""
    try:
        found = app.timezone
    except Exception:
        # An unknown name: Celery's own code fails with it wherever it is read.
        return UTC
    return found if isinstance(found, tzinfo) else UTC


def zone_name(zone: tzinfo) -> str:
    """The same for the same zone in every process."""
    key = getattr(zone, "key", None) or getattr(zone, "zone", None)
    if isinstance(zone, LocalTimezone):
        return "local"
    if key is None and zone.utcoffset(None) is not None:
        return "UTC" if zone.utcoffset(None) == timedelta(0) else str(zone)
    return str(key or zone)


def offset_at(moment: float, zone: tzinfo) -> int:
    """By how many seconds clocks there are ahead of UTC."""
    if zone is UTC:
        return 0
    if isinstance(zone, LocalTimezone):
        return time.localtime(moment).tm_gmtoff
    found = datetime.fromtimestamp(moment, zone).utcoffset()
    return 0 if found is None else found.days * 86_400 + found.seconds


def moments(wall: int, zone: tzinfo) -> tuple[int, ...]:
    """When clocks there show it: once, twice, or never."""
    before, after = offset_at(wall - _WEST, zone), offset_at(wall + _EAST, zone)
    if before == after:
        return (wall - before,)
    found = {wall - offset for offset in (before, after) if offset_at(wall - offset, zone) == offset}
    return tuple(sorted(found))


def first_moment(wall: int, zone: tzinfo) -> int:
    """The first time that clocks there show it; the end of the gap if they skip it."""
    found = moments(wall, zone)
    return found[0] if found else _change(wall - _WEST, wall + _EAST, zone)


def next_change(moment: int, zone: tzinfo) -> int | None:
    """When the clocks there are set next, if that is within a day."""
    if offset_at(moment, zone) == offset_at(moment + _AHEAD, zone):
        return None
    return _change(moment, moment + _AHEAD, zone)


def _change(low: int, high: int, zone: tzinfo) -> int:
    """The first moment of another offset than that of `low`; `high` has another."""
    offset = offset_at(low, zone)
    while high - low > 1:
        middle = (low + high) // 2
        if offset_at(middle, zone) == offset:
            low = middle
        else:
            high = middle
    return high
