"""MemoryRevoked: revokes of one process, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from hardening.revoked.rules import Revoke
from hardening.revoked.store import Changes, Mark

__all__ = ["MemoryRevoked"]


class MemoryRevoked:
    """Gone with its process. Safe in threads. Its clock can be given."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rows: dict[Revoke, tuple[float, float, bool]] = {}
        """When, until when, and whether it was forgotten."""

    def add(self, revokes: Sequence[Revoke], *, ttl_seconds: float, most: int) -> int:
        with self._lock:
            now = self._purge()
            self._rows.update(dict.fromkeys(revokes, (now, now + ttl_seconds, False)))
            excess = max(0, len(self._rows) - most)
            first = sorted(self._rows, key=lambda revoke: self._rows[revoke][1])[:excess]
            return sum(not self._rows.pop(revoke)[2] for revoke in first)

    def forget(self, revokes: Sequence[Revoke], *, ttl_seconds: float) -> tuple[Revoke, ...]:
        with self._lock:
            now = self._purge()
            were = tuple(each for each in revokes if each in self._rows and not self._rows[each][2])
            self._rows.update(dict.fromkeys(revokes, (now, now + ttl_seconds, True)))
            return were

    def changes(self, since: float | None = None) -> Changes:
        with self._lock:
            now = self._purge()
            told = [(key, row) for key, row in self._rows.items() if since is None or row[0] >= since]
        return Changes(
            now,
            tuple(Mark(key, at, until) for key, (at, until, gone) in told if not gone),
            tuple(key for key, (_, _, gone) in told if gone),
        )

    def _purge(self) -> float:
        now = self._clock()
        self._rows = {key: row for key, row in self._rows.items() if row[1] > now}
        return now
