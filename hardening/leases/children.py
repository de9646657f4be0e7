"""A child of prefork that died as the connection broke is watched again, instead of ending the worker.

A child's sentinel is a pipe that the kernel closes when the child ends, a moment before the child can be
reaped. Celery's pool forgets the sentinel (`_sentinel_poll` becomes None) as soon as it sees it closed, and
then reaps. Whoever looks in that moment, on a busy machine, finds the child not yet over: it stays in the
pool, unwatched, until the pool's next look within 5 s. So does one that runs on with its descriptors closed,
as a daemon does. A reconnect within that time registers all children anew, and meets None: ValueError('file
descriptor is None'), which is no connection error, and ends the worker (exit 1).

Here each child that is unwatched gets a sentinel again, just before Celery registers the children. One that
is dead is seen in the first turn of the loop, where its end always is seen: its job is told that its process
is lost, is counted, and its message comes back. No job and no process is touched here. Between this and
Celery's registration nothing else runs in this thread: a child that dies meanwhile has a sentinel, and is
seen by it.

Which way it fails: a pool that does not look as expected is left alone. An error of the system (no
descriptor left) is not caught: Celery ends the worker for it, as at any other place.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["watch_again"]

_NEVER = object()
"""A child that was not watched yet: Celery begins to by itself."""


def watch_again(pool: Any) -> None:
    """Give each child of prefork's pool that is not watched any more a sentinel, for Celery to register."""
    processes: Any = getattr(pool, "_pool", None)
    if not hasattr(processes, "_track_child_process"):
        return  # Another pool, or one that has a thread to look after its children.
    for child in processes._pool:
        if getattr(child, "_sentinel_poll", _NEVER) is None:
            child._sentinel_poll = _sentinel(child)


def _sentinel(child: Any) -> int:
    """A descriptor that is the pool's to close: the child's own sentinel, or one that says it is over."""
    own = getattr(child._popen, "sentinel", None)
    if own is not None:
        return os.dup(own)
    over, writing = os.pipe()  # It was joined already, and an error came before the pool took it out.
    os.close(writing)
    return over
