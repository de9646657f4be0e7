"""A task that waits as input and output does, and says when it runs."""

from __future__ import annotations

import time

from celery import shared_task

from .effects import record


@shared_task(name="nap")
def nap(number: int) -> None:
    record(f"start {number}")
    time.sleep(0.1)
    record(f"end {number}")
