"""The port LeaderLock: a lease that one Beat of many has, with an epoch that only grows.

The argument. The lease is in the store, and the store's clock ends it. To win it is one atomic step: it is
free, or over, or the same holder's: whoever asked and got no answer asks again, and wins a later epoch. Each
win makes a new epoch, greater than every one before and than `at_least`, which the
caller got from its tick store: a lock store that lost its memory does not go back to old epochs. Renewing and
resigning name holder and epoch, and change nothing for anybody else. Whoever gets no answer knows nothing,
and trusts its term as long as `beat_leader.term` says, and no longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from hardening.core.errors import HardeningError

__all__ = ["LeaderLock", "LockUnavailable", "Standing"]


class LockUnavailable(HardeningError):
    """The lock store does not answer, or lacks its table; the text says what to do. A request that ends so
    may have been done or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Who leads, as the store says in its answer."""

    holder: str
    """Empty: nobody."""

    epoch: int
    """Of that term; of the last one if nobody leads."""

    remaining_seconds: float
    """Until the lease is over, by the store's clock; 0 if nobody leads."""

    now: float
    """The store's time, seconds since 1970."""


@runtime_checkable
class LeaderLock(Protocol):
    """Constructed with its OPTIONS as keyword arguments, and with the Celery app as `app` where it takes one.

    Safe in threads and after a fork. Each call ends within about two seconds, whatever the store does, or
    raises LockUnavailable. What it wrote stays, whatever becomes of a transaction that the caller is in.
    """

    def acquire(self, holder: str, *, lease_seconds: float, at_least: int = 0) -> Standing:
        """Try once. It was won if the answer's holder is this one; its epoch is above `at_least` then.

        A holder that has the lease already gets a new epoch: it may be another process of the same name, and
        the old one's epoch is over.
        """
        ...

    def renew(self, holder: str, epoch: int, *, lease_seconds: float) -> Standing:
        """The lease begins anew if it is this holder's, in this epoch, and not over; else nothing changes.
        The answer says who leads."""
        ...

    def resign(self, holder: str, epoch: int) -> bool:
        """End this term, at once. False if it was over."""
        ...

    def look(self) -> Standing:
        """Who leads, and the store's time. Changes nothing."""
        ...

    def close(self) -> None:
        """Leave no connection open. It may be used again."""
        ...
