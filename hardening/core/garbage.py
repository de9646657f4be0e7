"""Keeps the garbage collector away from a block that must not lose its turn.

The collector runs wherever a thread or greenlet happens to be, and so do the finalizers of what it finds.
Some talk to a server: that of Celery's AsyncResult, which stays behind where a task sends another or is tried
again, unsubscribes from Redis, over a new connection if need be. On gevent other greenlets run meanwhile: the
block has lost its turn in the middle of whatever it was at.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uncollected"]


class _Held:
    """The collector belongs to the whole process, and so does this."""

    lock = threading.RLock()
    blocks = 0
    was_on = False


@contextmanager
def uncollected() -> Iterator[None]:
    """Inside the block no garbage is collected, in the whole process. For short blocks.

    What is freed because nobody refers to it any more is freed as ever.
    """
    with _Held.lock:
        _Held.blocks += 1
        if _Held.blocks == 1:
            _Held.was_on = gc.isenabled()
            gc.disable()
    try:
        yield
    finally:
        with _Held.lock:
            _Held.blocks -= 1
            if not _Held.blocks and _Held.was_on:
                gc.enable()


def _start_anew() -> None:
    # The thread that was in such a block does not exist in the child.
    if _Held.blocks and _Held.was_on:
        gc.enable()
    _Held.blocks = 0
    _Held.lock = threading.RLock()


os.register_at_fork(after_in_child=_start_anew)
