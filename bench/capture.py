"""Capture of a dead letter beside a bare insert: one committed row of the same bytes, nothing else.

Both take turns on one open connection, in one process. Capture is everything between the error that leaves
the body and the letter that is kept: verdict, traceback, redaction, letter, statement, log line. `cpu` is the
processor time of this thread; the rest of `capture` is waiting, for the database or another program. Where
those are many, each round trip counts their time slices, and the difference of two p95 says nothing: then
`chrt --rr 10 python -m bench capture` gives this program, and the database that it starts, the right of way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.stand import ROOT
from hardening.testing.errors import ServerMissing
from hardening.testing.servers import MariaDBServer, PostgresServer

__all__ = ["run"]

GOAL_P95_MILLISECONDS = 2.0
KINDS = ("postgresql", "mariadb", "sqlite")
_LIMIT_SECONDS = 900


def run(options: Namespace) -> list[dict[str, Any]]:
    """Measure and print all databases."""
    print(
        f"Capture of {options.letters} letters with three attempts each, beside bare inserts of as many\n"
        f"bytes; milliseconds. Goal on PostgreSQL: over the bare insert p95 < {GOAL_P95_MILLISECONDS:g}."
    )
    columns = ("bare p50", "p95", "capture p50", "p95", "over p50", "p95", "cpu p50")
    print(f"{'':<12}" + "".join(f"{name:>{len(name) + 3}}" for name in columns))
    rows = []
    for kind in KINDS:
        if options.only and options.only not in kind:
            continue
        try:
            row = _measured(kind, options.letters)
        except ServerMissing as missing:
            print(f"{kind:<12}{missing}")
            continue
        rows.append(row)
        print(
            f"{kind:<12}{row['bare_p50']:>11.2f}{row['bare_p95']:>6.2f}{row['capture_p50']:>14.2f}"
            f"{row['capture_p95']:>6.2f}{row['over_p50']:>11.2f}{row['over_p95']:>6.2f}{row['cpu_p50']:>10.2f}",
            flush=True,
        )
    return rows


def _measured(kind: str, letters: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, _database(kind, Path(name)) as entry:
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "bench.project.settings",
            "BENCH_VARIANT": "hardened",
            "BENCH_BROKER": "memory://",
            "BENCH_RESULTS": "cache+memory://",
            "BENCH_DATABASE": str(Path(name) / "unused.sqlite3"),
            "BENCH_LETTERS": json.dumps(entry),
            "BENCH_PREFETCH": "1",
            "BENCH_HARDENING": "{}",
            "BENCH_CELERY": "{}",
        }
        done = subprocess.run(
            [sys.executable, "-m", "bench.capturing", str(letters)],
            env=env,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=_LIMIT_SECONDS,
        )
    figures: dict[str, Any] = json.loads(done.stdout)
    return {"database": kind, **figures}


@contextmanager
def _database(kind: str, directory: Path) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        if kind == "postgresql":
            yield stack.enter_context(PostgresServer()).django_database()
        elif kind == "mariadb":
            yield stack.enter_context(MariaDBServer()).django_database()
        else:
            yield {"ENGINE": "django.db.backends.sqlite3", "NAME": str(directory / "letters.sqlite3")}
