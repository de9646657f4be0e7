"""A task that kills the process which runs it, each time."""

from __future__ import annotations

import os
import signal

from celery import Task, shared_task

from .effects import record


@shared_task(name="kill_own_process", bind=True)
def kill_own_process(self: Task) -> None:
    record(f"kill_own_process {self.request.id}")
    os.kill(os.getpid(), signal.SIGKILL)
