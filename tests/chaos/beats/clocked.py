"""`celery`, under libfaketime: the host's clock can be moved by a file while a Beat runs.

libfaketime 0.9.10 does not know `clock_nanosleep` with the monotonic clock, which `time.sleep` uses; and only
its library for threads bears several of them.
"""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path

__all__ = ["environment", "jump", "libfaketime"]

_PLACES = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/lib64/faketime", "/usr/local/lib/faketime")


def libfaketime() -> Path | None:
    """None: it is not installed."""
    for place in _PLACES:
        for found in sorted(Path("/").glob(f"{place[1:]}/libfaketimeMT.so.1")):
            return found
    return None


def environment(clock: Path) -> dict[str, str]:
    """What a process needs whose clock is moved by `jump`; nothing where the library is missing."""
    found = libfaketime()
    if found is None:
        return {}
    jump(clock, 0.0)
    return {
        "LD_PRELOAD": str(found),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def jump(clock: Path, seconds: float) -> None:
    """From now on its clock differs by that from the others'."""
    new = clock.with_suffix(".new")
    new.write_text(f"{seconds:+.0f}\n")
    new.replace(clock)


def _sleep(seconds: float) -> None:
    select.select([], [], [], seconds)


if __name__ == "__main__":
    if "faketime" in os.environ.get("LD_PRELOAD", ""):
        time.sleep = _sleep  # type: ignore[assignment]
    from celery.__main__ import main

    sys.exit(main())
