"""Pages of the admin over very many dead letters, on PostgreSQL: how long a request takes.

`dlq_make_letters` fills a server of this program's own. Then Django's test client asks for pages as a
superuser, in one process, one request after the other: a page's time is what the view, its queries and its
template take. Each address has a few requests that do not count, and then `--requests` that do. Of a filter
the row is that of its slowest choice, and so of orders and of the like. Goal: p95 < 200 ms.

Other programs on the machine are measured too: `cpu` is the processor time of this process without the
database, the median.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from bench.stand import ROOT
from hardening.testing.errors import ServerMissing
from hardening.testing.servers import PostgresServer

__all__ = ["SERVER_SETTINGS", "run", "run_with_django"]

GOAL_P95_MILLISECONDS = 200.0
SERVER_SETTINGS = ("shared_buffers=1GB", "max_wal_size=8GB", "synchronous_commit=off")
_LIMIT_SECONDS = 3600


def run(options: Namespace) -> list[dict[str, Any]]:
    """Measure and print every page."""
    print(
        f"Admin over {options.store:,} letters in {options.groups:,} groups on PostgreSQL, milliseconds of\n"
        f"each of {options.requests} requests; goal: p95 < {GOAL_P95_MILLISECONDS:g}.\n"
        f"{'page':<34}{'p50':>7}{'p95':>7}{'max':>7}{'cpu':>7}{'queries':>9}  slowest of"
    )
    try:
        with PostgresServer(extra_settings=SERVER_SETTINGS) as server:
            rows = run_with_django(
                *(
                    "bench.lettering",
                    str(options.store),
                    str(options.groups),
                    str(options.requests),
                    options.only,
                ),
                database=server.django_database(),
            )
    except ServerMissing as missing:
        print(missing)
        return []
    for row in rows:
        if "made_seconds" in row:
            print(f"{row['page']:<34}{row['made_seconds']} s")
            continue
        print(
            f"{row['page']:<34}{row['p50']:>7.0f}{row['p95']:>7.0f}{row['max']:>7.0f}{row['cpu']:>7.0f}"
            f"{row['queries']:>9}  {row['address']}{'' if row['p95'] < GOAL_P95_MILLISECONDS else '  SLOW'}"
        )
    return rows


def run_with_django(
    module: str, *arguments: str, database: Mapping[str, Any], **env: str
) -> list[dict[str, Any]]:
    """Run a module of ours in a process of its own with this database; what it prints is its rows."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "bench.project.settings",
            "BENCH_VARIANT": "hardened",
            "BENCH_BROKER": "memory://",
            "BENCH_RESULTS": "cache+memory://",
            "BENCH_DATABASE": "unused",
            "BENCH_SERVER": json.dumps(dict(database)),
            "BENCH_PREFETCH": "1",
            "BENCH_HARDENING": "{}",
            "BENCH_CELERY": "{}",
            **env,
        },
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_LIMIT_SECONDS,
    )
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows
