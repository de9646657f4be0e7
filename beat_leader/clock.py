"""The time that due times are judged by: the store's, carried on by a clock that nobody sets.

Hosts whose clocks differ or jump judge alike so, and a schedule's due times come once. What a leader knows of
the store's time is at most as old as its last renewal.
"""

from __future__ import annotations

import threading
import time

__all__ = ["ClockUnknown", "StoreClock", "steady"]

_STEADY = getattr(time, "CLOCK_BOOTTIME", None)


class ClockUnknown(Exception):
    """The store has not told its time yet."""


def steady() -> float:
    """Seconds of a clock that nobody sets, and that goes on while the machine sleeps where there is one."""
    return time.monotonic() if _STEADY is None else time.clock_gettime(_STEADY)


class StoreClock:
    """Safe in threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offset: float | None = None
        self._skew: float | None = None
        self._way_seconds = 0.0

    def heard(self, *, asked_at: float, answered_at: float, store_now: float, wall: float) -> None:
        """The store told its time, seconds since 1970, between two moments of `steady`; `wall`: `time.time()`
        at the second."""
        middle = (asked_at + answered_at) / 2
        with self._lock:
            self._offset = store_now - middle
            self._way_seconds = answered_at - asked_at
            self._skew = wall - (store_now + (answered_at - middle))

    def now(self) -> float:
        """The store's time, seconds since 1970. Raises ClockUnknown before it was told."""
        with self._lock:
            if self._offset is None:
                raise ClockUnknown("the store has not told its time yet")
            return self._offset + steady()

    @property
    def skew_seconds(self) -> float | None:
        """By how much this host's clock is ahead of the store's; known to half of `way_seconds`."""
        return self._skew

    @property
    def way_seconds(self) -> float:
        """How long the last answer took."""
        return self._way_seconds
