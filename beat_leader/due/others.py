"""Schedules that only their own code knows: solar ones, and of the project's classes. And a single time."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from math import ceil
from typing import Any

from .listing import listed
from .values import Due

__all__ = ["AskedSeries", "EstimatedSeries", "OneTime"]

_MOST = 10_000
_SECOND_US = 1_000_000


class OneTime:
    """Due once."""

    def __init__(self, at: datetime) -> None:
        self._at = round(at.timestamp() * 1000) / 1000

    def next(self, after: float) -> float | None:
        """It, if it is to come."""
        return self._at if self._at > after else None

    def between(self, after: float, until: float, keep: int) -> Due:
        """It, or nothing."""
        return Due(times=(self._at,)) if after < self._at <= until else Due()


class EstimatedSeries:
    """Due as its `remaining_estimate` says when asked at the due time before, up to the next whole second.

    `apart`: what is computed anew each time, such as a sunrise, comes out a little earlier or later. It is
    asked for the next one so many seconds after one that it named: an event is not due twice.
    """

    def __init__(self, when: Any, zone: tzinfo, *, apart: int = 0) -> None:
        self._when = when
        self._zone = zone
        self._apart = apart

    def next(self, after: float) -> float | None:
        """The first one after it."""
        asked, last = _at_moment(self._when, after + (self._apart if after.is_integer() else 0), self._zone)
        left: timedelta = asked.remaining_estimate(last)
        found_us = round(asked.now().timestamp() * _SECOND_US) + left // timedelta(microseconds=1)
        # An estimate that is not after the moment would be due for ever.
        return float(max(-(-found_us // _SECOND_US), int(after) + 1))

    def between(self, after: float, until: float, keep: int) -> Due:
        """In (after, until]."""
        return listed(self.next, after, until, keep, most=_MOST)


class AskedSeries:
    """One whose `is_due` is the project's: asked as Celery asks it, at most one due time at once."""

    def __init__(self, when: Any, zone: tzinfo) -> None:
        self._when = when
        self._zone = zone

    def next(self, after: float) -> float | None:
        """When to ask again."""
        due, seconds = self._state(after, after)
        return float(int(after) + 1 if due else max(ceil(after + (seconds or 0)), int(after) + 1))

    def between(self, after: float, until: float, keep: int) -> Due:
        """The second of `until`, if it is due then."""
        if int(until) <= after or not self._state(after, until)[0]:
            return Due()
        return Due(times=(float(int(until)),))

    def _state(self, last: float, now: float) -> tuple[bool, float | None]:
        asked, _ = _at_moment(self._when, now, self._zone)
        due, seconds = asked.is_due(datetime.fromtimestamp(last, self._zone))
        return bool(due), seconds


def _at_moment(when: Any, moment: float, zone: tzinfo) -> tuple[Any, datetime]:
    """A copy of it for which it is that moment, and the moment."""
    at = datetime.fromtimestamp(moment, zone)
    # Not by copy.copy: subclasses inherit a __reduce__ of Celery's that knows nothing of their arguments.
    asked = object.__new__(type(when))
    asked.__dict__.update(vars(when))
    asked.nowfun = lambda: at
    return asked, at
