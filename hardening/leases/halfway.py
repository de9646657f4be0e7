"""What is half written to a child of prefork, or half read from it, as the connection breaks, is finished.

A job or a result that is larger than the pipe between the processes (64 KiB) goes through it in pieces, and
what goes on with it is a generator that only the loop knows. When the connection breaks Celery empties its
loop. It does not take the readings up again, so that the rest of a result is read as the head of the next:
its task never ends. It does finish the writings when it flushes the pool, which is not done where messages
are leased, since the flush forgets what waits: the child would wait for the rest of its job for ever, and so
would the lease.

Here both go on with the new loop: a reading if it is of the same child, a writing if its child lives. What
was with a child that died goes the way that Celery has for it (and see `poison.unaccepted`).

Which way it fails: a pool that does not look as expected is left alone.
"""

from __future__ import annotations

from inspect import GEN_SUSPENDED, getgeneratorstate
from typing import Any

__all__ = ["go_on_writing", "keep_readings"]

_NEEDED = ("_result_handler", "_fileno_to_outq", "_active_writers", "_cache")


class Readings:
    """Put in front of the pool's `_recv_message`: what reads a pipe next goes on where the last stopped."""

    def __init__(self, handler: Any) -> None:
        self._stock = handler._recv_message
        self._children = handler.fileno_to_outq
        self._last: dict[int, tuple[Any, Any]] = {}

    def __call__(self, add_reader: Any, fd: int, callback: Any) -> Any:
        child = self._children.get(fd)
        of, reading = self._last.get(fd, (None, None))
        if child is None or of is not child or not _half(reading):
            reading = self._stock(add_reader, fd, callback)
            self._last[fd] = child, reading
        return reading


def keep_readings(pool: Any) -> None:
    """Before the pool is registered with a loop. May be called again."""
    processes = _processes(pool)
    if processes is not None and not isinstance(processes._result_handler._recv_message, Readings):
        processes._result_handler._recv_message = Readings(processes._result_handler)


def go_on_writing(pool: Any, hub: Any) -> None:
    """Take the writings up, after the pool was registered with the loop of a new connection."""
    processes = _processes(pool)
    if processes is None:
        return
    for job in tuple(processes._cache.values()):
        known = getattr(job, "_writer", None)
        writing = None if known is None else known()
        child = getattr(job, "_write_to", None)
        if writing in processes._active_writers and _half(writing) and child and child._is_alive():
            hub.add_writer(child.inqW_fd, writing)


def _processes(pool: Any) -> Any:
    """Prefork's own pool, or None."""
    found: Any = getattr(pool, "_pool", None)
    expected = all(hasattr(found, name) for name in _NEEDED)
    return found if expected and hasattr(found._result_handler, "_recv_message") else None


def _half(generator: Any) -> bool:
    return getgeneratorstate(generator) == GEN_SUSPENDED
