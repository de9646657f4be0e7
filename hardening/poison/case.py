"""A case: what the store knows of one work that may kill its process, as a value. Pure.

The document: {"starts": [...], "deaths": [...], "suspected": {...} or None, "given_up": [...]}. Whatever else
stands in its place reads as less than it says, and never as an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from hardening.twins.records import SUCCESS_KEPT_SECONDS

__all__ = [
    "GIVEN_UP_SECONDS",
    "MOST_DEATHS",
    "NOTHING",
    "Case",
    "Death",
    "GivenUp",
    "How",
    "Start",
    "Suspicion",
]

T = TypeVar("T")

MOST_DEATHS = 50
"""The latest that are kept: a document has at most 64 KB."""

GIVEN_UP_SECONDS = SUCCESS_KEPT_SECONDS
"""How long copies of what was given up are refused: as those of what has succeeded."""

_MOST_STARTS = 50
_MOST_GIVEN_UP = 20
_LONGEST_TEXT = 200
_LONGEST_NAME = 120
_OF_SIGTERM = (15, 128 + 15, -15)
"""billiard's children leave with the first of them."""


class How:
    """How a process died, as it is stored."""

    KILLED = "killed"
    """By a signal."""

    EXITED = "exited"
    MEMORY = "memory"
    """The body raised MemoryError."""

    GONE = "gone"
    """With its whole worker, or its machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A start that has not ended, as far as is known. `holder` names the process of its worker for good."""

    id: str
    holder: str = ""
    worker: str = ""
    host: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A start that ended with its process. Times in seconds since 1970, `peak` in bytes, 0 for unknown."""

    id: str
    """That of its start, where that was recorded."""

    at: float = 0.0
    how: str = How.GONE
    signal: str = ""
    exitcode: int | None = None
    pid: int = 0
    host: str = ""
    worker: str = ""
    ran: float | None = None
    """Seconds from its start until its end was seen."""

    peak: int = 0
    """The most memory that its process had, as far as it was seen."""

    killed_for_memory: bool = False
    """Whether the kernel ended a process of the worker's control group for memory in that time."""

    text: str = ""

    @property
    def is_of_sigterm(self) -> bool:
        """Whether somebody told the process to stop, and it did, as far as its end tells."""
        return self.signal == "SIGTERM" or self.exitcode in _OF_SIGTERM


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """A start before the first that was recorded: a worker that had the message is gone."""

    at: float = 0.0
    holder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """One publish that has its letter: its copies end without a start. `id` is the digest of its work with
    the publish, as twins have it: the same task id sent anew is another."""

    id: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """One work. Changes are values of their own."""

    starts: tuple[Start, ...] = ()
    deaths: tuple[Death, ...] = field(default=())
    suspected: Suspicion | None = None
    given_up: tuple[GivenUp, ...] = ()

    @classmethod
    def read(cls, document: Mapping[str, Any] | None) -> Case:
        """From what is stored."""
        found = document or {}
        return cls(
            tuple(_all(Start, found.get("starts"))),
            tuple(_all(Death, found.get("deaths"))),
            next(iter(_all(Suspicion, [found.get("suspected")])), None),
            tuple(_all(GivenUp, found.get("given_up"))),
        )

    def document(self) -> dict[str, Any] | None:
        """What is stored; None where there is nothing to store."""
        if self == NOTHING:
            return None
        return {
            "starts": [asdict(_cut(start)) for start in self.starts[-_MOST_STARTS:]],
            "deaths": [asdict(_cut(death)) for death in self.deaths[-MOST_DEATHS:]],
            "suspected": asdict(self.suspected) if self.suspected is not None else None,
            "given_up": [asdict(each) for each in self.given_up[-_MOST_GIVEN_UP:]],
        }

    def begun(self, start: Start) -> Case:
        """A start begins."""
        return replace(self.ended(start.id), starts=(*self.ended(start.id).starts, start))

    def ended(self, start_id: str) -> Case:
        """A start ended, and its process lives."""
        return replace(self, starts=tuple(start for start in self.starts if start.id != start_id))

    def died(self, death: Death) -> Case:
        """A start ended with its process. Said twice, it is one death."""
        others = tuple(each for each in self.deaths if each.id != death.id)
        if len(others) < len(self.deaths):
            return self.ended(death.id)
        return replace(self.ended(death.id), deaths=(*others, death))

    def gone(self, starts: Iterable[Start], now: float) -> Case:
        """These starts were left by workers that are gone."""
        case = self
        for start in starts:
            if start in case.starts:
                case = case.died(
                    Death(
                        id=start.id,
                        at=now,
                        how=How.GONE,
                        worker=start.worker,
                        host=start.host,
                        ran=max(0.0, now - start.at) if start.at else None,
                    )
                )
        return case

    def suspect(self, holder: str, now: float) -> Case:
        """A worker that had the message is gone. Of a work of which more is known, nothing changes."""
        return self if self.is_known else replace(self, suspected=Suspicion(at=now, holder=holder))

    def succeeded(self, start_id: str) -> Case:
        """The work is done: only what others run of it is left."""
        return Case(starts=self.ended(start_id).starts, given_up=self.given_up)

    def closed(self, name: str, now: float) -> Case:
        """It has its letter: what others run is left, and the name of what was given up, if it has one."""
        kept = [each for each in self.given_up if each.id != name and now - each.at < GIVEN_UP_SECONDS]
        if name:
            kept.append(GivenUp(id=name, at=now))
        return Case(starts=self.starts, given_up=tuple(kept))

    def refuses(self, name: str, now: float) -> bool:
        """Whether this was given up, and its copies are not to start."""
        return any(each.id == name and now - each.at < GIVEN_UP_SECONDS for each in self.given_up)

    def within(self, seconds: float, now: float) -> Case:
        """Without what is older."""
        since = now - seconds
        suspected = self.suspected if self.suspected is not None and self.suspected.at > since else None
        return replace(
            self, deaths=tuple(death for death in self.deaths if death.at > since), suspected=suspected
        )

    @property
    def is_known(self) -> bool:
        """Whether a start or a death is known, or one suspected."""
        return bool(self.starts or self.deaths or self.suspected is not None)

    @property
    def count(self) -> int:
        """How many starts ended in a death. The one that nobody saw counts as soon as another did."""
        return len(self.deaths) + (1 if self.deaths and self.suspected is not None else 0)


NOTHING = Case()


def _all(kind: Callable[..., T], rows: object) -> Iterable[T]:
    """Those that can be read."""
    known = {each.name: each.type for each in fields(kind)}  # type: ignore[arg-type]
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, Mapping):
            continue
        values = {name: row[name] for name in known if name in row and _fits(row[name], str(known[name]))}
        if "id" not in known or values.get("id"):
            yield kind(**values)


def _fits(value: object, kind: str) -> bool:
    if value is None:
        return "None" in kind
    if isinstance(value, bool):
        return kind == "bool"
    wanted: dict[str, tuple[type, ...]] = {"str": (str,), "float": (int, float), "int": (int,)}
    return isinstance(value, wanted.get(kind.partition(" ")[0], ()))


def _cut(end: Any) -> Any:
    """Texts come from an error, or from a host's name: bounded, as they are stored."""
    worker, host = _shortened(end.worker, _LONGEST_NAME), _shortened(end.host, _LONGEST_NAME)
    if isinstance(end, Death):
        return replace(end, text=_shortened(end.text, _LONGEST_TEXT), worker=worker, host=host)
    return replace(end, worker=worker, host=host)


def _shortened(text: str, most: int) -> str:
    """To so many bytes of JSON, where a letter may take twelve."""
    text = text[:most]
    while len(json.dumps(text)) - 2 > most:
        text = text[: len(text) * 3 // 4]
    return text
