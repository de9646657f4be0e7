"""What becomes of a work whose processes died: it runs, waits, is tried elsewhere, or is given up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from hashlib import sha256

from .case import Case
from .terms import Poison

__all__ = ["Decision", "Next", "decide"]

RUNS_ELSEWHERE_SECONDS = 2.0
"""How long the last starts of one work wait for others that run: asked again then."""

_MOST_DOUBLINGS = 40


class Next(Enum):
    """What follows."""

    RUN = "run"
    WAIT = "wait"
    ELSEWHERE = "elsewhere"
    """Its last try is on another queue."""

    QUARANTINE = "quarantine"
    """It does not run again: a letter."""

    REFUSE = "refuse"
    """A copy of what has its letter already: it ends without a start."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows, after how many deaths, and until when it waits: seconds since 1970."""

    next: Next
    count: int
    until: float = 0.0


def decide(case: Case, terms: Poison, now: float, *, moved: bool = True, name: str = "") -> Decision:
    """What may follow on what is known. `case.starts` are starts that run now, each of which may kill.

    `moved`: it is, or was, on its last queue, or is not to go there. `name`: see `work.publish_digest_of`.
    """
    if name and case.refuses(name, now):
        return Decision(Next.REFUSE, case.count)
    case = case.within(terms.window, now)
    count = case.count
    if count >= terms.limit:
        return Decision(Next.QUARANTINE, count)
    if case.deaths and (until := case.deaths[-1].at + back_off(case, terms)) > now:
        return Decision(Next.WAIT, count, until)
    if case.starts and count + len(case.starts) >= terms.limit:
        return Decision(Next.WAIT, count, now + RUNS_ELSEWHERE_SECONDS)
    # Only when it may start: where it cannot be moved it starts here, and is not tried again at once.
    if terms.last_try_queue and not moved and count and count + 1 >= terms.limit:
        return Decision(Next.ELSEWHERE, count)
    return Decision(Next.RUN, count)


def back_off(case: Case, terms: Poison) -> float:
    """Seconds from the last death to the next start: doubled with each, with a jitter that stays the same as
    often as it is asked for."""
    doubled: float = terms.base * 2.0 ** min(len(case.deaths) - 1, _MOST_DOUBLINGS)
    drawn = sha256(case.deaths[-1].id.encode()).digest()[0] / 255
    return min(terms.cap, doubled) * (0.5 + drawn / 2)
