"""Durations as people write them: "30 s", "1 h 30 m", "0 s, 30 s, 2 m", numbers and timedeltas."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

__all__ = ["delays_of", "seconds_of", "text_of"]

_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")
_FORMS = (
    'Accepted are a number of seconds, a timedelta, or a text such as "500 ms", "30 s", "1 h 30 m", "1 d".'
)


def seconds_of(value: Any) -> float:
    """The seconds that `value` stands for, finite and from 0 on.

    Raises ValueError, with the accepted forms, for everything else. A text needs units: a bare "30"
    does not say of what.
    """
    seconds = math.nan
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
    elif isinstance(value, str):
        seconds = _parsed(value)
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{_shown(value)} is not a duration. {_FORMS}")
    return seconds


def delays_of(value: Any) -> tuple[float, ...]:
    """The seconds of each duration in a text with commas, or in a list or tuple; at least one.

    Raises ValueError where `value` or one of its parts is something else.
    """
    if isinstance(value, str):
        parts: Sequence[Any] = value.split(",")
    elif isinstance(value, (list, tuple)):
        parts = value
    else:
        parts = ()
    if not parts:
        raise ValueError(
            f"{_shown(value)} is not a list of delays. "
            'Accepted are a text such as "0 s, 30 s, 2 m", or a list of durations.'
        )
    return tuple(seconds_of(part) for part in parts)


def text_of(seconds: float) -> str:
    """The other way round, for people: the two largest units, rounded, such as "30 s" or "1 h 30 m"."""
    if math.isinf(seconds) or math.isnan(seconds):
        return "no end"
    if round(seconds * 1000) < 1:
        return "0 s"
    if round(seconds * 1000) < 1000:
        return f"{round(seconds * 1000)} ms"
    if round(seconds, 1) < 10:
        return f"{round(seconds, 1):g} s"
    whole = round(seconds)
    if whole >= 3600:
        whole = round(seconds / 60) * 60
    if whole >= 86400:
        whole = round(seconds / 3600) * 3600
    parts = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts)


def _parsed(text: str) -> float:
    total, at, lowered = 0.0, 0, text.lower()
    while match := _PART.match(lowered, at):
        size = _UNITS.get(match[2])
        if size is None:
            return math.nan
        total += float(match[1]) * size
        at = match.end()
    return total if at and at == len(lowered) else math.nan


def _shown(value: Any) -> str:
    shown = repr(value) if not isinstance(value, int) or abs(value) < 10**20 else "a number beyond any clock"
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
