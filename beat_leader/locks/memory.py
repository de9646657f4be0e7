"""MemoryLock: for tests, and for who runs everything in one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from beat_leader.lock import Standing

__all__ = ["MemoryLock"]


class MemoryLock:
    """Shared by whoever has the object."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._holder = ""
        self._epoch = 0
        self._ends = 0.0

    def acquire(self, holder: str, *, lease_seconds: float, at_least: int = 0) -> Standing:
        """Won if nobody else has it."""
        with self._lock:
            now = self._clock()
            if self._holder in ("", holder) or self._ends <= now:
                self._epoch = max(self._epoch, at_least) + 1
                self._holder, self._ends = holder, now + lease_seconds
            return self._standing(now)

    def renew(self, holder: str, epoch: int, *, lease_seconds: float) -> Standing:
        """Only this term's own lease begins anew."""
        with self._lock:
            now = self._clock()
            if (self._holder, self._epoch) == (holder, epoch) and self._ends > now:
                self._ends = now + lease_seconds
            return self._standing(now)

    def resign(self, holder: str, epoch: int) -> bool:
        """Only this term ends."""
        with self._lock:
            ours = (self._holder, self._epoch) == (holder, epoch) and self._ends > self._clock()
            if ours:
                self._holder = ""
            return ours

    def look(self) -> Standing:
        """Changes nothing."""
        with self._lock:
            return self._standing(self._clock())

    def close(self) -> None:
        """Nothing is open."""

    def _standing(self, now: float) -> Standing:
        led = bool(self._holder) and self._ends > now
        return Standing(
            holder=self._holder if led else "",
            epoch=self._epoch,
            remaining_seconds=self._ends - now if led else 0.0,
            now=now,
        )
