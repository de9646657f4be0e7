"""Stores that end their process at a point that a test names."""

from __future__ import annotations

import os
import signal
from typing import Any

from hardening.delayed.stores.database import DatabaseDelayedStore
from hardening.delayed.stores.redis import RedisDelayedStore


class _Dying:
    def park(self, entry: Any) -> Any:
        super().park(entry)  # type: ignore[misc]
        os.kill(os.getpid(), signal.SIGKILL)


class OnRedis(_Dying, RedisDelayedStore):
    """Dies when a message is parked, before it is acknowledged."""


class OnDatabase(_Dying, DatabaseDelayedStore):
    """The same, where the broker is no Redis."""
