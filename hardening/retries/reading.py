"""Reads a dict of options, each by its own reader; what is wrong becomes a list, and the rest is used."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from .durations import seconds_of

__all__ = ["Problem", "Reader", "count_of", "flag_of", "positive_seconds_of", "read_options", "share_of"]

Reader = Callable[[Any], Any]
"""Turns what was written into the value, or raises ValueError with a sentence for its author."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One option that cannot be used. `key` is written as its author wrote it, "" for all of them."""

    key: str
    what: str

    def __str__(self) -> str:
        return f"{self.key}: {self.what}" if self.key else self.what


def read_options(raw: object, readers: Mapping[str, Reader]) -> tuple[dict[str, Any], list[Problem]]:
    """The values by option name, and what could not be used. Keys count in any case; None is not given."""
    if not isinstance(raw, Mapping):
        return {}, [Problem("", f"{raw!r} is a {type(raw).__name__}, not a dict")]
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in raw.items():
        name = str(key).lower()
        if name not in readers:
            close = get_close_matches(name, readers, n=1)
            hint = f'did you mean "{close[0]}"?' if close else f"known are {', '.join(sorted(readers))}"
            problems.append(Problem(str(key), f"unknown key; {hint}"))
        elif value is not None:
            try:
                values[name] = readers[name](value)
            except ValueError as wrong:
                problems.append(Problem(str(key), str(wrong)))
    return values, problems


def positive_seconds_of(value: Any) -> float:
    """A duration above 0."""
    seconds = seconds_of(value)
    if not seconds:
        raise ValueError(f"{value!r} is too short: give a duration above 0 s")
    return seconds


def count_of(value: Any) -> float:
    """A whole number from 1 on (an int), or math.inf for no limit."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and value == math.inf:
        return math.inf
    if not number or not value >= 1 or value != int(value):
        raise ValueError(f"{value!r} is not a whole number from 1 on; math.inf means no limit")
    return int(value)


def flag_of(value: Any) -> bool:
    """True or False, nothing else."""
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither True nor False")
    return value


def share_of(value: Any) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"{value!r} is not a share: give a number from 0 to 1")
    return float(value)
