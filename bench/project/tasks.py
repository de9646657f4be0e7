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


@shared_task(name="outlast")
def outlast(path: str, starts: int) -> None:
    """Note its start, and run until others have started it so often."""
    began = Path(path)
    note(began, time.monotonic())
    while len(began.read_text().splitlines()) < starts:
        time.sleep(0.05)


@shared_task(name="since")
def since(path: str, sent_at: float) -> None:
    """Note how long ago it was sent, by the clock that all processes share."""
    note(Path(path), time.monotonic() - sent_at)


@shared_task(name="drift")
def drift(path: str, due_at: float) -> None:
    """Note how late it is."""
    note(Path(path), time.time() - due_at)


def note(path: Path, seconds: float) -> None:
    """Add a line in one write, so that processes do not mix theirs."""
    with path.open("a") as lines:
        lines.write(f"{seconds!r}\n")
