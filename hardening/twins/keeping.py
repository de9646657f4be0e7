"""Celery 5.6 with prefork: what runs stays known to the pool when the connection is lost, and nothing else.

It forgets every job then, and its time limits: the task runs on, and nobody hears of its end. Its message,
adopted, would never be acknowledged. Celery 5.7 forgets only what no child has accepted, as is done here.
The requests of those stay in Celery 5.6's list for ever: it means to take them off, and looks for them by
another key.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery.worker import state

from hardening.private import celery_version

__all__ = ["are_processes", "running_kept"]

_FORGETS = celery_version() < (5, 7)


def are_processes(pool: Any) -> bool:
    """Whether it is prefork's pool, which drops what no child has accepted."""
    return hasattr(getattr(pool, "_pool", None), "_busy_workers")


@contextmanager
def running_kept(consumer: Any, *, forgets: bool = _FORGETS) -> Iterator[None]:
    """Around what Celery does when a connection was lost."""
    if not forgets or not are_processes(consumer.pool):
        yield
        return
    processes: Any = consumer.pool._pool
    running = {number: job for number, job in processes._cache.items() if getattr(job, "_accepted", False)}
    ends = (processes._on_soft_timeout, processes._on_hard_timeout)
    limits = [each for each in list(consumer.timer.queue) if each.entry.fun in ends]
    try:
        yield
    finally:
        for number, job in running.items():
            if job.ready():
                continue
            processes._cache.setdefault(number, job)
            if job._write_to is not None:  # No other job is put behind it.
                processes._busy_workers.add(job._write_to.inqW_fd)
        known = {id(each.entry) for each in list(consumer.timer.queue)}
        for limit in limits:
            if id(limit.entry) not in known:
                consumer.timer._enter(limit.eta, limit.priority, limit.entry)
        for task_id, request in tuple(state.requests.items()):
            if not request.time_start:
                del state.requests[task_id]
