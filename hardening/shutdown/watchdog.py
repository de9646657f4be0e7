"""The last resort of a grace period: a thread that looks whether the worker's loop still keeps it.

The loop cannot where it is held up: by the task of a solo worker, by a greenlet that computes, by a broker
that is silent. The thread touches nothing but the clock and the process: first it wakes the main thread
with a signal, whose handler runs there between two steps of whatever it does; then it ends the process.
Ending it is what the supervisor's SIGKILL would do a few seconds later, with the same outcome: nothing was
acknowledged that did not end, and the broker gives the rest to others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from hardening.leases.native import sleep, start_thread

if TYPE_CHECKING:
    from .drain import Drain

__all__ = ["watch"]

STALE_AFTER_SECONDS = 2.0
"""Without a turn of the drain for so long, its loop is held up."""

FIRM_AFTER_SECONDS = 6.0
"""So long after the grace period a worker whose loop is held up ends."""

_LOOK_EVERY_SECONDS = 0.2


def watch(drain: Drain, wake: Callable[[], None]) -> None:
    """Watch over a drain until it has finished. Without `threading`: that waits for the new thread, which a
    signal handler must not."""
    start_thread(lambda: _watch(drain, wake))


def _watch(drain: Drain, wake: Callable[[], None]) -> None:
    while not drain.finished:
        now = time.monotonic()
        stale = now - drain.last_turn
        deadline = drain.deadline
        if deadline is not None and now >= deadline and stale >= STALE_AFTER_SECONDS:
            if now >= deadline + FIRM_AFTER_SECONDS and stale >= FIRM_AFTER_SECONDS:
                _end(drain)
            if not drain.overdue:
                drain.overdue = True
                wake()
        sleep(_LOOK_EVERY_SECONDS)


def _end(drain: Drain) -> None:
    text = "celery-hardening: the worker's loop is held up after its grace period; the process ends\n"
    with suppress(OSError):
        os.write(2, text.encode())  # Not through logging, whose locks the main thread may hold.
    drain.hands.kill()
    os._exit(drain.exitcode)
