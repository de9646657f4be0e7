"""MemoryStore: shared state of one process, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from hardening.store import ABSENT, Entry, checked_ttl, decoded, encoded, new_version

__all__ = ["MemoryStore"]


class MemoryStore:
    """Documents in this process, gone with it. Safe in threads. Its clock can be given."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[str, int, float]] = {}

    def read(self, key: str) -> Entry:
        """The document, and the time."""
        now = self._clock()
        text, version, expires_at = self._rows.get(key, ("", ABSENT, now))
        return Entry(None, ABSENT, now) if expires_at <= now else Entry(decoded(text), version, now)

    def swap(self, key: str, *, version: int, value: Mapping[str, Any] | None, ttl_seconds: float) -> bool:
        """Put a document in the place of the one with that version."""
        text, ttl = None if value is None else encoded(value), checked_ttl(ttl_seconds)
        with self._lock:
            if self.read(key).version != version:
                return False
            if text is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = (text, new_version(), self._clock() + ttl)
            return True

    def close(self) -> None:
        """Nothing is open."""
