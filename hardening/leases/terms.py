"""Lease: how long a message stays with a worker that is silent, and the second clock, of a blocked worker.

Two clocks. A lease says that the process lives: the keeper's thread renews it, whatever the tasks do, and
it runs out soon after the process died. The budget says that the worker's main loop works: the keeper
stops renewing when the loop has given no sign of life for so long. A gevent hub or a solo worker that is
busy with one computation gives none, so the budget has to be longer than those computations; and it need
not be short, since it only ends what lives and does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hardening.core.findings import Finding
from hardening.retries.reading import Reader, flag_of, positive_seconds_of
from hardening.retries.resolve import section_of

__all__ = ["Lease", "lease_of"]

CODE = "CH017"
RENEWALS_IN_A_LEASE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """`HARDENING["LEASE"]`, read."""

    seconds: float = 12.0
    """How long a message stays with a worker that no longer renews it. It is served elsewhere about a second
    later."""

    renew_every: float = 4.0
    """Seconds between two renewals: at most a third of the lease."""

    wedged_after: float = 1800.0
    """Seconds without a sign of life of the worker's main loop, after which its leases run out."""

    atomic_take: bool = True
    """Whether a message is taken and leased in one step. Without it a crash in between loses the message, and
    so does a Redis that is full."""

    def __post_init__(self) -> None:
        """Raises ValueError for timings that cannot work."""
        if self.renew_every * RENEWALS_IN_A_LEASE > self.seconds:
            raise ValueError(
                f"RENEW_EVERY is {self.renew_every:g} s and the lease {self.seconds:g} s: a lease must hold "
                f"{RENEWALS_IN_A_LEASE} renewals, or one that is late gives running work to others"
            )
        if self.wedged_after < self.seconds:
            raise ValueError(
                f"WEDGED_AFTER is {self.wedged_after:g} s, less than the lease of {self.seconds:g} s"
            )


def lease_of(raw: Mapping[str, Any]) -> tuple[Lease, list[Finding]]:
    """The lease of `HARDENING["LEASE"]`, and what of it cannot be used."""
    readers: dict[str, Reader] = {
        "seconds": positive_seconds_of,
        "renew_every": positive_seconds_of,
        "wedged_after": positive_seconds_of,
        "atomic_take": flag_of,
    }
    return section_of(Lease, "LEASE", raw, readers, code=CODE)
