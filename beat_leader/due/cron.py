"""The due times of a crontab, in its own time zone, over all changes of the clocks."""

from __future__ import annotations

from collections import deque
from datetime import tzinfo
from math import ceil, floor
from typing import Any
from zoneinfo import ZoneInfo

from .calendar import Calendar
from .listing import listed
from .values import Due
from .zones import first_moment, moments, next_change, offset_at

__all__ = ["CronSeries", "zone_of_cron"]

_DAY = 86_400


def zone_of_cron(when: Any, zone: tzinfo) -> tzinfo:
    """Its own, else `zone`: where nobody set it, Celery takes that of whatever app is current."""
    own = vars(when).get("tz", zone)
    return ZoneInfo(own) if isinstance(own, str) else own


class CronSeries:
    """Due times are whole minutes."""

    def __init__(self, when: Any, zone: tzinfo) -> None:
        self._calendar = Calendar.of(when)
        self._zone = zone_of_cron(when, zone)

    def next(self, after: float) -> float | None:
        """The first one after it."""
        moment = floor(after)
        found = self._elapsed(moment) if self._calendar.every_hour else self._on_the_wall(moment)
        return None if found is None else float(found)

    def between(self, after: float, until: float, keep: int) -> Due:
        """In (after, until]. Whole days without a change of the clocks are counted, not gone through."""
        if until - after < 3 * _DAY:
            return listed(self.next, after, until, keep)
        kept: deque[tuple[int, float]] = deque()
        total = dropped = 0
        dropped_to = after
        start = after
        for count, end in self._stretches(after, until):
            kept.append((count, start))
            total += count
            start = end
            while total - kept[0][0] >= keep:
                gone, _ = kept.popleft()
                total, dropped = total - gone, dropped + gone
                dropped_to = kept[0][1]
        tail = listed(self.next, dropped_to, until, keep)
        return self._joined(after, dropped, dropped_to, tail)

    def _joined(self, after: float, dropped: int, dropped_to: float, tail: Due) -> Due:
        if not dropped:
            return tail
        last = tail.earlier_last
        if last is None:
            last = self._last(after, dropped_to)
        return Due(
            times=tail.times,
            earlier_count=dropped + tail.earlier_count,
            earlier_first=self.next(after),
            earlier_last=last,
        )

    def _last(self, after: float, until: float) -> float | None:
        """The last one in (after, until], which has some."""
        span = float(_DAY)
        while True:
            found = listed(self.next, max(after, until - span), until, 1).times
            if found or until - span <= after:
                return found[0] if found else None
            span *= 2

    def _stretches(self, after: float, until: float) -> Any:
        """(how many due times, its end) of each stretch of (after, until], one after the other."""
        zone, calendar = self._zone, self._calendar
        start = after
        day = (ceil(after) + offset_at(after, zone)) // _DAY + 1
        while start < until:
            end = min(float(first_moment(day * _DAY, zone)) - 0.001, until)
            if end <= start:
                day += 1
                continue
            if self._plain(start, end):
                yield (calendar.per_day if calendar.fits(day - 1) else 0), end
            else:
                yield listed(self.next, start, end, 1).count, end
            start, day = end, day + 1

    def _plain(self, start: float, end: float) -> bool:
        """Whether it is a whole day, from midnight on, in which no clock was set, nor at its beginning."""
        before = offset_at(start - 1, self._zone)
        begin = round(start + 0.001)
        return (
            abs(begin - start - 0.001) < 0.0005
            and round(end - start) == _DAY
            and before == offset_at(begin, self._zone) == offset_at(end, self._zone)
        )

    def _on_the_wall(self, moment: int) -> int | None:
        wall: int | None = moment + offset_at(moment, self._zone)
        while wall is not None:
            wall = self._calendar.next_wall(wall)
            if wall is not None:
                found = first_moment(wall, self._zone)
                # Not so: in an hour that comes the second time.
                if found > moment:
                    return found
        return None

    def _elapsed(self, moment: int) -> int | None:
        offset = offset_at(moment, self._zone)
        wall = self._calendar.next_wall(moment + offset)
        change = next_change(moment, self._zone)
        if change is not None:
            if wall is not None and wall - offset < change:
                return wall - offset
            moment = change - 1
            wall = self._calendar.next_wall(moment + offset_at(change, self._zone))
        while wall is not None:
            found = [each for each in moments(wall, self._zone) if each > moment]
            if found:
                return found[0]
            wall = self._calendar.next_wall(wall)
        return None
