"""`python -m tests.chaos.beats --failovers 300 --seed 7`: three Beats in each stage, and faults by the seed.

Stages: lock and ticks in Redis or PostgreSQL, schedules in code or in django-celery-beat; all at once.
Whoever leads is killed, paused, stopped or put in another time; the store is killed or cut off. A witness
notes every message on its way to a hardened worker, and knows by plain arithmetic what was due.

Double: a due time whose task completed twice. Missed: one that was neither sent nor recorded with a reason,
or that was sent, and whose task neither ran nor is recorded as expired. The account is
the last line; 1 unless nothing is doubled or missed, and the p99 of takeovers after SIGKILL, from the kill to
another's first message, is within 8 s.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hardening.testing.processes import ManagedProcess
from hardening.testing.servers import RedisServer

from . import clocked
from .plan import STAGES, Place, shares
from .report import is_good, last_line, table
from .stage import ROOT, Options

_LONGEST_SECONDS = 7200.0


def main(argv: Sequence[str] | None = None) -> int:
    """1: something is wrong."""
    names = [str(each) for each in STAGES]
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.beats",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--failovers", type=int, default=300, help="of all stages together (default 300)")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument(
        "--stage", action="append", choices=names, help="only this one; may be given again (default: all)"
    )
    parser.add_argument("--keep", type=Path, default=None, help="logs go there, and stay")
    options = parser.parse_args(argv)
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    if clocked.libfaketime() is None:
        if os.environ.get("CI"):
            print("libfaketime is missing: the Debian package faketime", file=sys.stderr)
            return 1
        print("libfaketime is missing: clocks do not jump (the Debian package faketime)")
    chosen = [each for each in STAGES if not options.stage or str(each) in options.stage]
    with TemporaryDirectory() as temporary:
        results = _run(chosen, options.failovers, seed, options.keep or Path(temporary))
    print(table(results))
    for stage in results:
        for problem in stage["problems"]:
            print(f"{stage['place']}: {problem}")
    print(last_line(results, seed))
    return 0 if is_good(results) else 1


def _run(chosen: list[Place], failovers: int, seed: int, directory: Path) -> list[dict[str, Any]]:
    """All stages at once, on one broker that is left alone."""
    with RedisServer() as broker:
        running = []
        try:
            for number, (place, share) in enumerate(zip(chosen, shares(failovers, len(chosen)), strict=True)):
                here = directory / str(place).replace(" ", "-")
                here.mkdir(parents=True, exist_ok=True)
                told = Options(
                    store=place.store,
                    source=place.source,
                    seed=seed,
                    failovers=share,
                    broker_url=broker.url_for(number),
                    directory=str(here),
                )
                running.append((told, _stage(told).start()))
            return [_result(told, process) for told, process in running]
        finally:
            for _, process in running:
                process.stop()


def _stage(told: Options) -> ManagedProcess:
    return ManagedProcess(
        [sys.executable, "-m", "tests.chaos.beats.stage", json.dumps(asdict(told))],
        log_path=Path(told.directory) / "stage.log",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        name=str(told.place),
    )


def _result(told: Options, process: ManagedProcess) -> dict[str, Any]:
    path = Path(told.directory) / "result.json"
    if process.wait(timeout=_LONGEST_SECONDS) == 0:
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    from .stage import Result

    return asdict(Result(place=str(told.place), problems=[process.log_tail()]))


if __name__ == "__main__":
    sys.exit(main())
