"""What times on the wall a crontab means: by the sets that Celery made of it. No time zone here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from typing import Any

__all__ = ["Calendar"]

_DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_YEARS = 41
"""The longest wait for a date is that for a 29 February on a certain day of the week, across 2100."""

_LAST_YEAR = 9990
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class Calendar:
    """Wall times are seconds since 1970 as a clock shows them."""

    minutes: Collection[int]
    hours: Collection[int]
    weekdays: Collection[int]
    """0: Sunday."""

    days: Collection[int]
    months: Collection[int]

    @classmethod
    def of(cls, when: Any) -> Calendar:
        """Of a crontab."""
        return cls(when.minute, when.hour, when.day_of_week, when.day_of_month, when.month_of_year)

    @property
    def every_hour(self) -> bool:
        """Whether it names no hour."""
        return len(self.hours) == 24

    @property
    def per_day(self) -> int:
        """How many times a day that fits has."""
        return len(self.hours) * len(self.minutes)

    def next_wall(self, wall: int) -> int | None:
        """The first one after `wall`."""
        day, second = divmod(wall, _DAY)
        if self.fits(day):
            hour, minute = divmod(second // 60, 60)
            if hour in self.hours:
                found = _first(self.minutes, minute + 1, 60)
                if found is not None:
                    return day * _DAY + hour * 3600 + found * 60
            found = _first(self.hours, hour + 1, 24)
            if found is not None:
                return self._at(day, found)
        first, next_day = _first(self.hours, 0, 24), self.next_day(day)
        return None if first is None or next_day is None else self._at(next_day, first)

    def fits(self, day: int) -> bool:
        """Whether the date, in days since 1970, is one of its."""
        if (day + 4) % 7 not in self.weekdays:
            return False
        on = date.fromordinal(_EPOCH + day)
        return on.day in self.days and on.month in self.months

    def next_day(self, day: int) -> int | None:
        """The first date after `day` that fits; None if none does in the years in which each date comes."""
        on = date.fromordinal(_EPOCH + day + 1)
        year, month, first = on.year, on.month, on.day
        for _ in range(_YEARS * 12):
            if year > _LAST_YEAR:
                return None
            if month in self.months:
                found = self._in_month(year, month, first)
                if found is not None:
                    return found
            month, first = month + 1, 1
            if month == 13:
                year, month = year + 1, 1
        return None

    def _in_month(self, year: int, month: int, first: int) -> int | None:
        start = date(year, month, 1).toordinal() - _EPOCH - 1
        for day in range(first, _length(year, month) + 1):
            if day in self.days and (start + day + 4) % 7 in self.weekdays:
                return start + day
        return None

    def _at(self, day: int, hour: int) -> int | None:
        minute = _first(self.minutes, 0, 60)
        return None if minute is None else day * _DAY + hour * 3600 + minute * 60


def _first(values: Collection[int], low: int, high: int) -> int | None:
    for value in range(low, high):
        if value in values:
            return value
    return None


def _length(year: int, month: int) -> int:
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _LENGTHS[month] + leap
