"""`python -m bench [SECTION ...]`: prints tables and writes build/bench.json.

Without a section all are measured; with `--only` alone, the rows of throughput. A section that is not
measured keeps its figures in the file.
"""

from __future__ import annotations

import argparse
import json
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import (
    beat,
    beats,
    capture,
    commands,
    counting,
    delayed,
    letters,
    recovery,
    replay,
    take,
    throughput,
)

OUTPUT = Path("build/bench.json")
SECTIONS = {
    "throughput": throughput.run,
    "take": take.run,
    "recovery": recovery.run,
    "commands": commands.run,
    "delayed": delayed.run,
    "capture": capture.run,
    "letters": letters.run,
    "counting": counting.run,
    "replay": replay.run,
    "beat": beat.run,
    "beats": beats.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)} (default: all)"
    )
    parser.add_argument("--only", default="", help="only rows that contain this text, e.g. 'redis gevent'")
    parser.add_argument(
        "--pairs", type=int, default=5, help="throughput: pairs of runs for each row (default 5)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="take: runs of each variant (default 3)")
    parser.add_argument("--kills", type=int, default=20, help="recovery: kills for each row (default 20)")
    parser.add_argument(
        "--plain-kills", type=int, default=1, help="recovery: of plain Celery, two minutes each (default 1)"
    )
    parser.add_argument(
        "--side-by-side", type=int, default=4, help="recovery: rows at the same time (default 4)"
    )
    parser.add_argument(
        "--tasks", type=int, default=2000, help="commands: tasks to count with (default 2000)"
    )
    parser.add_argument("--idle", type=float, default=30.0, help="commands: idle seconds (default 30)")
    parser.add_argument(
        "--messages", type=int, default=100_000, help="delayed: how many are parked (default 100000)"
    )
    parser.add_argument(
        "--plain-messages", type=int, default=10_000, help="delayed: of plain Celery (default 10000, scaled)"
    )
    parser.add_argument("--rate", type=int, default=200, help="delayed: due in a second (default 200)")
    parser.add_argument(
        "--letters", type=int, default=1000, help="capture: letters on each database (default 1000)"
    )
    parser.add_argument(
        "--store", type=int, default=1_000_000, help="letters: so many in the store (default 1000000)"
    )
    parser.add_argument("--groups", type=int, default=2000, help="letters: in so many groups (default 2000)")
    parser.add_argument("--uncounted", type=int, default=40_000, help="counting: new letters (default 40000)")
    parser.add_argument("--requests", type=int, default=40, help="letters: for each page (default 40)")
    parser.add_argument(
        "--replays", type=int, default=100_000, help="replay: letters without a pace (default 100000)"
    )
    parser.add_argument("--replay-rate", type=int, default=500, help="replay: a second (default 500)")
    parser.add_argument(
        "--replay-seconds", type=float, default=20.0, help="replay: at that rate (default 20, 0: not)"
    )
    parser.add_argument(
        "--schedules", type=int, default=10_000, help="beat: of one Beat, due every minute (default 10000)"
    )
    parser.add_argument(
        "--takeovers",
        type=int,
        default=3,
        help="beats: kills of each kind, up to two minutes each (default 3)",
    )
    options = parser.parse_args()
    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(f"no such section: {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    chosen = options.sections or (["throughput"] if options.only else list(SECTIONS))
    for name in chosen:
        print(f"\n== {name}", flush=True)
        _keep(name, SECTIONS[name](options))
    print(f"written to {OUTPUT}")


def _keep(name: str, rows: list[dict[str, Any]]) -> None:
    """After each section: a run that is interrupted later keeps what it has."""
    OUTPUT.parent.mkdir(exist_ok=True)
    try:
        report = json.loads(OUTPUT.read_text())
    except (OSError, ValueError):
        report = {}
    if report.get("versions") != _versions():
        report = {"versions": _versions()}  # Figures of other versions do not stand beside these.
    report.setdefault("measured_at", {})[name] = datetime.now(UTC).isoformat(timespec="seconds")
    report[name] = rows
    OUTPUT.write_text(json.dumps(report, indent=2))


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("celery", "kombu", "django", "redis", "gevent")}
    return {"python": platform.python_version(), **packages}


main()
