"""Tasks that end in the ways that plain Celery handles badly; given to a worker with `-I`."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from celery import Task, shared_task
from celery.exceptions import Ignore, Reject

from .effects import record, released


@shared_task(name="paths.held", bind=True)
def held(self: Task) -> None:
    """Runs until the test says so, or until it is revoked."""
    record(f"start {self.request.id}")
    while not released():
        time.sleep(0.02)


@shared_task(name="paths.child", bind=True)
def child(self: Task) -> None:
    """Says in which process it runs."""
    record(f"start {self.request.id} {os.getpid()}")


@shared_task(name="paths.ignoring", bind=True)
def ignoring(self: Task) -> None:
    record(f"start {self.request.id}")
    raise Ignore


@shared_task(name="paths.putting_back", bind=True, retry_policy={"delays": "1 s, 1 s"})  # type: ignore[call-overload,untyped-decorator]
def putting_back(self: Task) -> None:
    """Wants its message again, each time."""
    record(f"start {self.request.id} {time.time():.3f}")
    raise Reject("not now", requeue=True)


class DyingAfterwards(Task):
    """Its process is killed after its result was stored, at the first run."""

    abstract = True

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        marker = Path(f"{os.environ['TEST_EFFECTS']}.died-{task_id}")
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


@shared_task(name="paths.dying_afterwards", bind=True, base=DyingAfterwards)
def dying_afterwards(self: Task) -> int:
    record(f"start {self.request.id}")
    return 7


class BrokenHooks(Task):
    """Each hook of its own is a defect."""

    abstract = True

    def on_retry(self, *args: Any) -> None:
        raise LookupError("in on_retry")

    def on_failure(self, *args: Any) -> None:
        raise LookupError("in on_failure")


@shared_task(name="paths.flaky", bind=True, base=BrokenHooks)
def flaky(self: Task, value: int) -> int:
    """Fails twice, then gives its value."""
    record(f"start {self.request.id}")
    if self.request.retries < 2:
        raise ConnectionError("not yet")
    return value


@shared_task(name="paths.failing", bind=True, base=BrokenHooks, retry_policy={"automatic": False})
def failing(self: Task) -> None:
    record(f"start {self.request.id}")
    raise ValueError("in the body")
