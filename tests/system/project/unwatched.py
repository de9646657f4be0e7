"""A task in the state of a child that dies just now: its sentinel is closed, and it is not over yet."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from celery import Task, shared_task

from .effects import record, released
from .poisonous import large

__all__ = ["large", "unwatched"]


@shared_task(name="unwatched", bind=True)
def unwatched(self: Task) -> str:
    """Close the sentinel, as the kernel does before a process can be reaped, and wait for the test."""
    sentinel = _sentinel()
    pipe = os.fstat(sentinel).st_ino
    os.close(sentinel)
    record(f"start {self.request.id} {os.getppid()} {os.getpid()} {pipe}")
    while not released():
        time.sleep(0.02)
    return "done"


def _sentinel() -> int:
    """The descriptor that tells the parent of this process's end. billiard keeps it in this frame alone."""
    frame: Any = sys._getframe()
    while frame.f_code.co_name != "_launch":
        frame = frame.f_back
    return int(frame.f_locals["child_w"])
