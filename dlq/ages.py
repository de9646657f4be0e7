"""Ages in settings, as people write them: "90 d", "12 h". Pure."""

from __future__ import annotations

import re
from datetime import timedelta

__all__ = ["age_of", "age_text"]

_FORM = re.compile(r"\s*(?P<number>\d{1,6}(?:\.\d{1,3})?)\s*(?P<unit>[a-z]+)\s*", re.ASCII)
_UNITS = {
    "s": timedelta(seconds=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_LONGEST = timedelta(days=36_500)


def age_of(value: object) -> timedelta:
    """From a text such as "90 d" (s, min, h, d, w). Raises ValueError, whose text is for people."""
    match = _FORM.fullmatch(value) if isinstance(value, str) else None
    if match is None or match["unit"] not in _UNITS:
        raise ValueError(f'{value!r} is no age: write a number and s, min, h, d or w, as "90 d"')
    # A hundred years is longer than any store lives, and no date becomes too early for a database.
    return min(float(match["number"]) * _UNITS[match["unit"]], _LONGEST)


def age_text(age: timedelta) -> str:
    """As it would be written: in the largest unit that leaves no rest."""
    for unit, size in reversed(_UNITS.items()):
        if age >= size and age % size == timedelta(0):
            return f"{age // size} {unit}"
    return f"{age.total_seconds():g} s"
