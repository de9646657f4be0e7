"""The port Register: what Beats tell of themselves, for people, probes and alarms. Nothing rests on it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

__all__ = ["Register", "Role", "Sign", "TermRecord"]


class Role(StrEnum):
    """What a Beat was at its last tick."""

    LEADER = "leader"
    STANDBY = "standby"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A sign of life, given by the thread that ticks at the end of a tick and by nobody else.

    Moments are seconds since 1970. `at` is the store's, set by the register when it takes the sign.
    """

    holder: str
    """Host, process and a random part: one running Beat."""

    role: Role
    epoch: int
    """Of its term, or the latest it has seen."""

    tick_seconds: float
    """How long its last tick took."""

    lag_seconds: float
    """By how much the most overdue due time that is to be sent is late; 0 if none is."""

    schedules: int
    skew_seconds: float | None = None
    host: str = ""
    pid: int = 0
    started: float = 0.0
    version: str = ""
    problem: str = ""
    """What keeps it from its work, such as a store that does not answer; empty: nothing."""

    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TermRecord:
    """One term of the history. Seconds since 1970 by the store's clock."""

    epoch: int
    holder: str
    began: float
    ended: float | None = None
    """None: it goes on, or its leader died and could not say."""

    end: str = ""
    """resigned; stuck: it resigned because its tick did not end; unable: it could not read or write, or was
    refused; lost; or empty."""

    first_sent: float | None = None
    """When it sent its first message."""


@runtime_checkable
class Register(Protocol):
    """Constructed as a TickStore is; raises TicksUnavailable like one. Bounded: old signs, terms and refusals
    are forgotten (signs after a day, all but the latest 1,000 terms)."""

    def tell(self, sign: Sign) -> float:
        """Keep it as the holder's latest; returns the store's time."""
        ...

    def signs(self) -> list[Sign]:
        """The latest of each holder, leader first, then the latest."""
        ...

    def leave(self, holder: str) -> None:
        """It stopped cleanly: it is no standby that fell silent."""
        ...

    def term_began(self, epoch: int, holder: str) -> None:
        """Kept once for each epoch."""
        ...

    def term_sent(self, epoch: int) -> None:
        """It sent its first message; later calls change nothing."""
        ...

    def term_ended(self, epoch: int, end: str) -> None:
        """By its own leader. The first end stays."""
        ...

    def terms(self, limit: int = 100) -> list[TermRecord]:
        """The latest first."""
        ...

    def refused(self, epoch: int, holder: str, what: str) -> None:
        """A Beat with an old epoch tried to write, and was refused."""
        ...

    def refusals(self, *, since: float) -> list[tuple[float, int, str, str]]:
        """(when, epoch, holder, what) of those since then, at most 100, the latest first."""
        ...

    def ask_to_resign(self, epoch: int, by: str) -> None:
        """The leader of that epoch is to resign; forgotten with the term."""
        ...

    def asked_to_resign(self, epoch: int) -> str | None:
        """By whom; None: nobody asked."""
        ...

    def now(self) -> float:
        """The store's time."""
        ...

    def close(self) -> None:
        """Leave no connection open. It may be used again."""
        ...
