"""Tasks that are running when their worker is told to stop: each says which attempt it is."""

from __future__ import annotations

import time

from celery import Task, shared_task

from .effects import record, released


@shared_task(name="stoppable", bind=True)
def stoppable(self: Task) -> str:
    """Run until the test says so, or as long as it lives."""
    record(f"start {self.request.id} {self.request.retries}")
    while not released():
        time.sleep(0.02)
    record(f"end {self.request.id}")
    return "done"


@shared_task(name="work_for", bind=True)
def work_for(self: Task, seconds: float) -> str:
    """Take a while."""
    record(f"start {self.request.id} {self.request.retries}")
    time.sleep(seconds)
    record(f"end {self.request.id}")
    return "done"


@shared_task(name="stubborn_greenlet", bind=True)
def stubborn_greenlet(self: Task) -> str:
    """Take the end of its greenlet for an error of its own, and go on."""
    record(f"start {self.request.id} {self.request.retries}")
    while not released():
        try:
            time.sleep(0.02)
        except BaseException:
            record(f"unimpressed {self.request.id}")
    record(f"end {self.request.id}")
    return "done"


@shared_task(name="early_and_long", bind=True, early_ack="of no use to anybody")  # type: ignore[call-overload,untyped-decorator]
def early_and_long(self: Task) -> None:
    """Acknowledged before it runs."""
    record(f"start {self.request.id} {self.request.retries}")
    while not released():
        time.sleep(0.02)


@shared_task(name="hourly", rate_limit="1/h")
def hourly() -> None:
    """One an hour in each worker."""
    record("start hourly")
