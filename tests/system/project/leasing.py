"""Tasks whose runs can be counted: each says when it starts and when it has ended."""

from __future__ import annotations

import time

from celery import Task, shared_task

from .effects import record, released


@shared_task(name="outlast", bind=True)
def outlast(self: Task, seconds: float) -> str:
    """Sleep."""
    record(f"start {self.request.id}")
    time.sleep(seconds)
    record(f"end {self.request.id}")
    return "outlasted"


@shared_task(name="compute", bind=True)
def compute(self: Task, seconds: float) -> str:
    """Keep the processor busy, and with it a gevent hub or a solo worker."""
    record(f"start {self.request.id}")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))
    record(f"end {self.request.id}")
    return "computed"


@shared_task(name="until_released", bind=True)
def until_released(self: Task) -> str:
    """Run until the test says so."""
    record(f"start {self.request.id}")
    while not released():
        time.sleep(0.02)
    record(f"end {self.request.id}")
    return "released"


@shared_task(name="limited_rate", bind=True, rate_limit="1/s")
def limited_rate(self: Task) -> None:
    """One a second."""
    record(f"start {self.request.id}")
    record(f"end {self.request.id}")
