"""The due times of intervals: counted from an anchor, so that no delay of one moves the next."""

from __future__ import annotations

from datetime import timedelta, tzinfo
from math import floor

from .listing import listed
from .values import BadSchedule, Due
from .zones import first_moment, offset_at

__all__ = ["IntervalSeries", "RelativeDays", "interval_of"]

_SECOND = 1_000_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


class IntervalSeries:
    """Anchor + n * interval, n from 1, cut to whole milliseconds."""

    def __init__(self, every_us: int, first_us: int) -> None:
        self._every = every_us
        self._first = first_us

    def next(self, after: float) -> float | None:
        """The first one after it."""
        return self._at(self._number(after))

    def between(self, after: float, until: float, keep: int) -> Due:
        """In (after, until]."""
        begin, end = self._number(after), self._number(until)
        cut = max(begin, end - keep)
        times = tuple(self._at(number) for number in range(cut, end))
        if cut == begin:
            return Due(times=times)
        return Due(
            times=times,
            earlier_count=cut - begin,
            earlier_first=self._at(begin),
            earlier_last=self._at(cut - 1),
        )

    def _number(self, after: float) -> int:
        """Of the first one after it; the very first has 0."""
        least = (floor(round(after * _SECOND) / 1000) + 1) * 1000
        return max(0, -((self._first - least) // self._every))

    def _at(self, number: int) -> float:
        return (self._first + number * self._every) // 1000 / 1000


class RelativeDays:
    """An interval of days or more, `relative`: at local midnights."""

    def __init__(self, every_us: int, anchor: float, zone: tzinfo) -> None:
        self._step = every_us // _DAY
        self._zone = zone
        self._first = (_wall_us(anchor, zone) + every_us) // _DAY

    def next(self, after: float) -> float | None:
        """The first one after it."""
        day = (floor(after) + offset_at(after, self._zone)) // 86_400
        number = max(0, (day - self._first) // self._step)
        while True:
            found = first_moment((self._first + number * self._step) * 86_400, self._zone)
            if found > after:
                return float(found)
            number += 1

    def between(self, after: float, until: float, keep: int) -> Due:
        """In (after, until]."""
        return listed(self.next, after, until, keep)


def interval_of(
    every: timedelta, relative: bool, anchor: float, zone: tzinfo, name: str = ""
) -> IntervalSeries | RelativeDays:
    """Of Celery's `schedule`. Raises BadSchedule for one of no length, or less than a millisecond."""
    every_us = every // timedelta(microseconds=1)
    if every_us < 1000:
        raise BadSchedule(name, f"an interval of {every.total_seconds():g} s; at least 0.001 s is possible")
    anchor_us = round(anchor * _SECOND)
    if not relative or every_us < _SECOND:
        return IntervalSeries(every_us, anchor_us + every_us)
    if every_us >= _DAY:
        return RelativeDays(every_us, anchor, zone)
    # As Celery rounds it: each one down to what the interval is counted in, from the one before.
    unit = _HOUR if every_us >= _HOUR else _MINUTE if every_us >= _MINUTE else _SECOND
    wall = (_wall_us(anchor + every_us / _SECOND, zone)) // unit * unit
    first_us = first_moment(wall // _SECOND, zone) * _SECOND
    if first_us <= anchor_us:
        first_us += unit
    return IntervalSeries(every_us // unit * unit, first_us)


def _wall_us(moment: float, zone: tzinfo) -> int:
    return round(moment * _SECOND) + offset_at(moment, zone) * _SECOND
