"""A task that ends its process each time, or has no memory for its work."""

from __future__ import annotations

import os
import signal

from celery import Task, shared_task

from .effects import record


@shared_task(name="kill_own_process", bind=True)
def kill_own_process(self: Task) -> None:
    record(f"kill_own_process {self.request.id}")
    os.kill(os.getpid(), signal.SIGKILL)


@shared_task(name="run_out_of_memory", bind=True)
def run_out_of_memory(self: Task) -> None:
    record(f"run_out_of_memory {self.request.id}")
    raise MemoryError("as if")
