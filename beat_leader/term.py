"""Term: one leadership, from its election to its end. Pure.

A Beat believes in its own term only until `trusted_until`, which counts from before the request that won or
renewed the lease was sent, less a margin: whatever the answer's way took, the lease in the store ends later.
Moments are those of `beat_leader.clock.steady`, which goes on while a process is stopped or a machine sleeps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Term", "Timings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """How long a lease is, and how it is kept. Impossible ones are refused at the start."""

    lease_seconds: float = 6.0
    """After so long without a renewal the store gives the lease to another."""

    renew_seconds: float = 2.0
    """Between two renewals: at most a third of the lease."""

    margin_seconds: float = 1.0
    """So long before the end of its lease a leader stops believing in it: for clocks that run unlike."""

    def problems(self) -> list[str]:
        """Why they cannot work; empty if they can."""
        found = []
        if not 0 < self.renew_seconds <= self.lease_seconds / 3:
            found.append(
                f"a renewal every {self.renew_seconds:g} s is not within a third of the lease of "
                f"{self.lease_seconds:g} s: one that is late would end the term"
            )
        if not 0 < self.margin_seconds < self.lease_seconds - self.renew_seconds:
            found.append(
                f"a margin of {self.margin_seconds:g} s leaves no time to renew a lease of "
                f"{self.lease_seconds:g} s every {self.renew_seconds:g} s"
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """`holder` leads in this epoch. A later term has a higher epoch, whoever holds it: the fencing token."""

    holder: str
    epoch: int
    trusted_until: float

    @classmethod
    def won(cls, holder: str, epoch: int, *, asked_at: float, timings: Timings) -> Term:
        """`asked_at`: before the request was sent."""
        return cls(holder=holder, epoch=epoch, trusted_until=_trust(asked_at, timings))

    def renewed(self, *, asked_at: float, timings: Timings) -> Term:
        """Trust never shrinks by a renewal that was asked for earlier and answered later."""
        return replace(self, trusted_until=max(self.trusted_until, _trust(asked_at, timings)))

    def trusted(self, now: float) -> bool:
        """Whether its holder may send. At the very moment of its end it may not."""
        return now < self.trusted_until


def _trust(asked_at: float, timings: Timings) -> float:
    return asked_at + timings.lease_seconds - timings.margin_seconds
