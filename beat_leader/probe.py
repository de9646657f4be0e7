"""`python -m beat_leader.probe`: is the Beat of this host ticking? For liveness probes and supervisors.

It imports neither the project nor Django nor Celery, and asks no store: it reads the file that the thread
which ticks writes at the end of each tick. A stopped process, a tick that hangs, and a machine that was
started anew are all seen by the age of that sign. Leader and standby are judged alike. Exit codes: 0 ticking,
1 not ticking, 2 no Beat found, or its file cannot be read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .clock import steady
from .heartbeat_file import boot_id, default_directory

__all__ = ["judge", "main"]

TICKING, NOT_TICKING, NOT_FOUND = 0, 1, 2
DEFAULT_MAX_AGE_SECONDS = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code, after one line for each Beat."""
    parser = argparse.ArgumentParser(
        prog="python -m beat_leader.probe", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument(
        "--file",
        type=Path,
        help='what BEAT_LEADER["HEARTBEAT_FILE"] says; by default every Beat of this user on the host',
    )
    parser.add_argument(
        "--max-age",
        type=float,
        default=DEFAULT_MAX_AGE_SECONDS,
        metavar="SECONDS",
        help="how old the end of the last tick may be (default %(default)g)",
    )
    parser.add_argument(
        "--role", choices=("any", "leader", "standby"), default="any", help="what it has to be (default any)"
    )
    options = parser.parse_args(arguments)
    paths = [options.file] if options.file else _running(default_directory())
    if not paths:
        return _say(NOT_FOUND, f"no Beat of this user has written a sign of life to {default_directory()}")
    now, boot = steady(), boot_id()
    return max(_probe(path, options.max_age, options.role, now, boot) for path in paths)


def judge(sign: dict[str, Any], *, max_age: float, role: str, now: float, boot: str) -> tuple[int, str]:
    """The exit code and why. Pure. `now`: of the clock that the sign was written by."""
    who = f"Beat {sign.get('holder') or sign['pid']}, {sign['role']}"
    age = now - float(sign["steady"])
    if boot and sign.get("boot") and boot != sign["boot"]:
        return NOT_TICKING, f"{who}: its last sign of life is from before the machine was started"
    if not 0 <= age <= max_age:
        return NOT_TICKING, f"{who}: the last tick ended {age:.1f} s ago, more than {max_age:g} s"
    if role not in ("any", sign["role"]):
        return NOT_TICKING, f"{who}: it is not {role}"
    problem = f"; {sign['problem']}" if sign.get("problem") else ""
    return TICKING, f"{who}: the last tick ended {age:.1f} s ago{problem}"


def _probe(path: Path, max_age: float, role: str, now: float, boot: str) -> int:
    try:
        sign = json.loads(path.read_text(encoding="utf-8"))
        return _say(*judge(sign, max_age=max_age, role=role, now=now, boot=boot))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        return _say(NOT_FOUND, f"{path} tells nothing of a Beat: {type(exc).__name__}: {exc}")


def _running(directory: Path) -> list[Path]:
    """The files of Beats whose process exists: one that was killed leaves its file behind."""
    return sorted(path for path in directory.glob("*.json") if _exists(path.stem))


def _exists(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def _say(code: int, text: str) -> int:
    sys.stdout.write(f"{text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
