"""How fast an operation sends, and when it stops by itself. Pure.

Four paces: as fast as it goes, a fixed rate, a share of what the queue's consumers get done, and a ramp whose
steps each wait for the outcomes of what they sent. A pace says how much may go now; who waits is the runner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .states import PausedBecause

__all__ = [
    "LEAST_JUDGED",
    "RAMP_STEPS",
    "Judged",
    "Look",
    "Pace",
    "Ramp",
    "RampTurn",
    "Rate",
    "Share",
    "Unlimited",
    "pace_of",
    "parse_pace",
    "pause_for",
    "ramp_turn",
    "share_rate",
]

RAMP_STEPS = (1, 2, 5, 20, 50, 100, 200, 500, 1000)
"""The last one is repeated."""

LEAST_JUDGED = 10
"""So many outcomes must be known before a percentage of them pauses, unless no more are to come."""

_MOST_PER_SECOND = 100_000.0
_SHARE_LEAST, _SHARE_MOST = 0.2, 1_000.0


@dataclass(frozen=True, slots=True)
class Unlimited:
    """As fast as database and broker take it."""

    def as_json(self) -> dict[str, Any]:
        return {"kind": "unlimited"}

    def __str__(self) -> str:
        return "unlimited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many each second, together with all others who send to the same queue."""

    per_second: float

    def __post_init__(self) -> None:
        if not 0 < self.per_second <= _MOST_PER_SECOND:
            raise ValueError(f"a rate is above 0 and at most {_MOST_PER_SECOND:,.0f} a second")

    def as_json(self) -> dict[str, Any]:
        return {"kind": "rate", "per_second": self.per_second}

    def __str__(self) -> str:
        return f"{self.per_second:g}/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """So many percent of what the consumers of the queue get done: the rest is for other work."""

    percent: float

    def __post_init__(self) -> None:
        if not 0 < self.percent <= 100:
            raise ValueError("a share is above 0 and at most 100 percent")

    def as_json(self) -> dict[str, Any]:
        return {"kind": "share", "percent": self.percent}

    def __str__(self) -> str:
        return f"{self.percent:g} % of the drain rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """Steps: each is sent at once, and the next one waits until all outcomes of this one are known."""

    steps: tuple[int, ...] = RAMP_STEPS

    def __post_init__(self) -> None:
        if not self.steps or any(step < 1 for step in self.steps):
            raise ValueError("each step of a ramp is a whole number from 1")
        if any(later < earlier for earlier, later in pairwise(self.steps)):
            raise ValueError("no step of a ramp is smaller than the one before")

    def as_json(self) -> dict[str, Any]:
        return {"kind": "ramp", "steps": list(self.steps)}

    def __str__(self) -> str:
        return f"ramp {', '.join(map(str, self.steps))}"


Pace = Unlimited | Rate | Share | Ramp


def pace_of(stored: Mapping[str, Any] | Pace | None) -> Pace:
    """The pace of what `as_json` made; a ramp where nothing was given. Raises ValueError."""
    if isinstance(stored, (Unlimited, Rate, Share, Ramp)):
        return stored
    if not stored:
        return Ramp()
    try:
        match stored.get("kind"):
            case "unlimited":
                return Unlimited()
            case "rate":
                return Rate(per_second=float(stored["per_second"]))
            case "share":
                return Share(percent=float(stored["percent"]))
            case "ramp":
                return Ramp(steps=tuple(int(step) for step in stored["steps"]))
    except (KeyError, TypeError) as exc:
        raise ValueError(f"not a pace: {dict(stored)!r}") from exc
    raise ValueError(f"not a pace: {dict(stored)!r}")


def parse_pace(text: str) -> Pace:
    """`unlimited`, `rate:50`, `share:20`, `ramp`, `ramp:1,5,25`. Raises ValueError, which names these."""
    kind, _, given = text.strip().partition(":")
    try:
        if kind == "unlimited" and not given:
            return Unlimited()
        if kind == "rate":
            return Rate(per_second=float(given))
        if kind == "share":
            return Share(percent=float(given))
        if kind == "ramp":
            return Ramp(steps=tuple(int(step) for step in given.split(","))) if given else Ramp()
    except ValueError as exc:
        raise ValueError(f"{text!r} is no pace: {exc}") from exc
    raise ValueError(f"{text!r} is no pace: give unlimited, rate:50, share:20, ramp or ramp:1,5,25")


@dataclass(frozen=True, slots=True, kw_only=True)
class RampTurn:
    """How many may go now; `advance`: the step is over, and the next one begins."""

    may_send: int
    advance: bool = False


def ramp_turn(ramp: Ramp, *, step: int, step_sent: int, outstanding: int) -> RampTurn:
    """What a ramp allows in its step number `step` (from 0), of which so many were sent already.

    `outstanding` are those sent whose outcome is not known.
    """
    size = ramp.steps[min(step, len(ramp.steps) - 1)]
    if step_sent < size:
        return RampTurn(may_send=size - step_sent)
    return RampTurn(may_send=0, advance=outstanding == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A look at a queue: its length, and how many messages we had sent to it by then."""

    at: float
    length: int
    sent: int


def share_rate(percent: float, *, before: Look, now: Look, rate: float) -> float:
    """The rate from now on, given the one until now.

    Where messages wait, what left the queue is what its consumers can do, and we take our percent of that.
    Where none waits nobody is kept waiting by us, and what consumers could do cannot be seen: the rate is
    doubled until some wait. What others publish meanwhile makes the estimate smaller, never larger.
    """
    seconds = now.at - before.at
    if seconds <= 0:
        return rate
    if now.length == 0:
        return min(rate * 2, _SHARE_MOST)
    left = max(0, before.length + (now.sent - before.sent) - now.length)
    return max(_SHARE_LEAST, min(percent / 100 * left / seconds, _SHARE_MOST))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Outcomes since the operation began, or was resumed. `same_cause` is a part of `came_back`."""

    succeeded: int = 0
    came_back: int = 0
    same_cause: int = 0
    lost: int = 0
    outstanding: int = 0

    @property
    def known(self) -> int:
        """How many outcomes are known."""
        return self.succeeded + self.came_back + self.lost

    @property
    def failed_percent(self) -> float:
        """Of those that are known."""
        return 100 * (self.came_back + self.lost) / self.known if self.known else 0.0


def pause_for(judged: Judged, *, above_percent: int, on_same_cause: bool) -> PausedBecause | None:
    """Why the operation must pause now, or None. `above_percent` 100: no share of failures pauses it."""
    if on_same_cause and judged.same_cause:
        return PausedBecause.SAME_CAUSE
    if judged.known < LEAST_JUDGED and judged.outstanding:
        return None
    return PausedBecause.FAILURES if judged.failed_percent > above_percent else None
