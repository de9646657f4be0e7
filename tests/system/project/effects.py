"""What a task did, in a file of the test's own, apart from broker and database."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hardening import Permanent


def record(line: str) -> None:
    """Append one line; short appends are atomic."""
    handle = os.open(os.environ["TEST_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


def released() -> bool:
    """Whether the test lets the held tasks go on."""
    return Path(os.environ["TEST_EFFECTS"] + ".release").exists()


def hold(name: str) -> None:
    """Say that the body runs, and stay in it until the test says so."""
    record(f"started {name}")
    while not released():
        time.sleep(0.02)


def hold_and_fail(name: str) -> None:
    """As `hold`, then fail for good."""
    hold(name)
    raise Permanent(f"{name} failed")
