"""What a batch of letters adds to the counts of their groups. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

__all__ = ["Counts", "LetterFacts", "hour_of", "tally"]

Hours = Counter[tuple[str, datetime]]
Facets = dict[tuple[str, str, str], tuple[int, datetime]]


class LetterFacts(NamedTuple):
    """What is counted of a letter; the names are those of its columns."""

    pk: UUID
    fingerprint: str
    failed_at: datetime
    reason: str
    task_name: str
    error_class: str
    queue: str
    release: str
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What is new: letters of each group, newest first; letters of each hour; of each value of a facet, with
    the last time it was seen."""

    groups: dict[str, list[LetterFacts]]
    hours: Hours
    facets: Facets


def hour_of(moment: datetime) -> datetime:
    """The start of its hour."""
    return moment.replace(minute=0, second=0, microsecond=0)


def tally(letters: Iterable[LetterFacts], facets: tuple[str, ...]) -> Counts:
    """Add them up."""
    newest_first = sorted(letters, key=lambda letter: letter.failed_at, reverse=True)
    groups: dict[str, list[LetterFacts]] = {}
    hours: Hours = Counter()
    values: Facets = {}
    readers: list[tuple[str, Callable[[LetterFacts], str]]] = [(name, _reader(name)) for name in facets]
    for letter in newest_first:
        groups.setdefault(letter.fingerprint, []).append(letter)
        hours[letter.fingerprint, hour_of(letter.failed_at)] += 1
        for facet, read in readers:
            key = (letter.fingerprint, facet, read(letter))
            count, last = values.get(key, (0, letter.failed_at))
            values[key] = (count + 1, last)
    return Counts(groups=groups, hours=hours, facets=values)


def _reader(name: str) -> Callable[[LetterFacts], str]:
    def read(letter: LetterFacts) -> str:
        return str(getattr(letter, name))

    return read
