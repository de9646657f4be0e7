"""Deaths before acceptance: a child of prefork that dies while it reads its job, as for want of memory.

billiard counts a job as accepted when the child says so, which it does after it has read it. A child that
dies before has its job put back by Celery, at the head, for the next child: without an end, and without a
word to anybody. Here such a job counts as accepted, and its process as lost: it is a death as any other, is
told to the request and counted, and its message comes back from the broker with a back-off.

Not charged: a job whose child had to leave anyway. That child leaves with the code of one that has done its
work, or has said so before, when an earlier task of it had raised SystemExit. Nor one that has been put back
and waits: Celery takes it for written to a child that has got the descriptors of its first one.

Which way it fails: a pool that does not look as expected is left alone, and loops as Celery's does.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from typing import Any

from .death import EX_RECYCLE

__all__ = ["leaves", "watch_unaccepted"]

logger = logging.getLogger("hardening")

_IN_GOOD_ORDER = (0, EX_RECYCLE)
_NEEDED = ("on_partial_read", "mark_as_worker_lost", "outbound_buffer")
_RUN = 0
"""A pool that is not being stopped."""

_MOST_LEAVING = 1000

_leaving: OrderedDict[int, None] = OrderedDict()
"""Children that have said that they leave, by pid."""


def leaves(pid: object) -> None:
    """A child has said that it leaves: what it was sent since then has nothing to do with its end."""
    if isinstance(pid, int):
        _leaving[pid] = None
        if len(_leaving) > _MOST_LEAVING:
            _leaving.popitem(last=False)


def watch_unaccepted(pool: Any) -> None:
    """Watch the children of a prefork pool. May be called again."""
    processes = getattr(pool, "_pool", None)
    if not all(hasattr(processes, name) for name in _NEEDED):
        return  # Another pool, or one whose children read from a queue that they share.
    own: Any = processes
    if "on_partial_read" in vars(own):
        return
    stock = own.on_partial_read

    def on_partial_read(job: Any, child: Any) -> None:
        try:
            if own._state == _RUN and job not in own.outbound_buffer and _is_charged(job, child):
                logger.error("a process of the pool died while it was reading task %s", job.correlation_id)
                job._ack(None, time.monotonic(), child.pid, None)
                own.mark_as_worker_lost(job, child.exitcode)
        # Celery's own way goes on.
        except Exception:
            logger.exception("the death of a process before its task began could not be counted")
        stock(job, child)

    own.on_partial_read = on_partial_read


def _is_charged(job: Any, child: Any) -> bool:
    if job._accepted or job.ready() or job._terminated is not None:
        return False
    left = child.pid in _leaving or getattr(child, "_controlled_termination", False)
    return not left and child.exitcode not in (*_IN_GOOD_ORDER, None)
