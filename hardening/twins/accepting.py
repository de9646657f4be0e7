"""Learns what prefork's children have taken up, before Celery drops the tasks that it believes waiting.

After a lost connection Celery forgets the jobs that no child has accepted. One that was written to a child
whose answer has not been read yet runs all the same, unknown to anybody, and again when its message comes
back. A child answers within a millisecond when it is idle, and it is sent a job only then: so the answers
are read first, for a quarter of a second at most. What a child takes up later runs twice: a window.
"""

from __future__ import annotations

import logging
import select
import time
from typing import Any

__all__ = ["take_in_accepted"]

logger = logging.getLogger("hardening")

PATIENCE_SECONDS = 0.25


def take_in_accepted(pool: Any) -> None:
    """Read the answers of the children that were sent a job."""
    if getattr(pool, "is_green", False):
        time.sleep(0)  # A greenlet that was spawned a moment ago begins.
        return
    processes = getattr(pool, "_pool", None)
    handler = getattr(processes, "_result_handler", None)
    if not hasattr(processes, "_fileno_to_outq") or handler is None:
        return
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while (sent := _sent_to(processes)) and (left := deadline - time.monotonic()) > 0:
            poll = select.poll()
            for fd in sent:
                poll.register(fd, select.POLLIN)
            for fd, _ in poll.poll(left * 1000):
                handler.handle_event(fd)
    # Celery's own way goes on: at worst a task runs twice.
    except Exception:
        logger.warning("what the pool's processes have taken up could not be read", exc_info=True)


def _sent_to(processes: Any) -> set[int]:
    """Where the answers of children come from that were sent a job and have not answered."""
    jobs = [job for job in tuple(processes._cache.values()) if not getattr(job, "_accepted", True)]
    children = [child for job in jobs if (child := getattr(job, "_write_to", None)) is not None]
    return {child.outqR_fd for child in children if child.outqR_fd in processes._fileno_to_outq}
