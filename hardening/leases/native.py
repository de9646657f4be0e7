"""Threads, locks and sleep of the system itself, also where gevent has put its own in their places."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["allocate_lock", "sleep", "start_thread"]


def _original(module: str, name: str) -> Any:
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None:
        return monkey.get_original(module, name)
    return getattr(__import__(module), name)


def start_thread(function: Callable[[], None]) -> None:
    """Run a function in a thread that goes on while a greenlet computes. It ends with the process."""
    _original("_thread", "start_new_thread")(function, ())


def allocate_lock() -> Any:
    """A lock that is held by a thread, not by a greenlet."""
    return _original("_thread", "allocate_lock")()


def sleep(seconds: float) -> None:
    """Block this thread."""
    _original("time", "sleep")(seconds)
