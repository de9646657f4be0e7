"""Ctrl-C and its relatives: they interrupt anywhere, but not half-way through a step that leaves traces."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Holding:
    """Signal handlers belong to the whole process, and so does this."""

    depth = 0
    asked = False


def take_interrupts() -> None:
    """From now on SIGINT, SIGTERM and SIGHUP all raise KeyboardInterrupt in the main thread."""
    for number in _SIGNALS:
        signal.signal(number, _interrupt)


@contextmanager
def held() -> Iterator[None]:
    """Keep an interrupt back until the block is left. For short steps, such as starting one process.

    An error of the block goes before: whoever handles it ends the demo anyway.
    """
    _Holding.depth += 1
    try:
        yield
    finally:
        _Holding.depth -= 1
    if _Holding.asked and not _Holding.depth:
        _Holding.asked = False
        raise KeyboardInterrupt


def refuse_interrupts() -> None:
    """From now on they are ignored: the demo is ending, and every step of that is bounded in time."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, frame: object) -> None:
    if _Holding.depth:
        _Holding.asked = True
    else:
        raise KeyboardInterrupt
