"""Tasks of schedules, which say when they run."""

from __future__ import annotations

import time

from celery import shared_task

from hardening import Permanent

from .effects import record


@shared_task(name="tick_off", time_limit=30)
def tick_off(name: str, seconds: float = 0.0, fails: bool = False) -> None:
    record(f"{name} start {time.time()}")
    time.sleep(seconds)
    record(f"{name} end {time.time()}")
    if fails:
        raise Permanent("it fails")
