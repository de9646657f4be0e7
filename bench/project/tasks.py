"""The work that is measured, and marks at its beginning and end."""

from __future__ import annotations

import time
from pathlib import Path

from celery import shared_task


@shared_task(name="noop")
def noop() -> None:
    return None


@shared_task(name="wait_100_ms")
def wait_100_ms() -> None:
    time.sleep(0.1)


@shared_task(name="mark")
def mark(path: str) -> None:
    Path(path).write_text(repr(time.time()))
