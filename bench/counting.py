"""How soon an operator sees what broke: 40,000 new letters counted by the duties of one real worker.

On PostgreSQL. The letters are there, uncounted, when a worker with nothing else to do starts; measured is the
time from its start until the last one has its group, and until the first group is to be seen. Goal: a minute.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from bench.letters import SERVER_SETTINGS, run_with_django
from hardening.testing.errors import ServerMissing
from hardening.testing.servers import PostgresServer, RedisServer

__all__ = ["run"]

GOAL_SECONDS = 60.0


def run(options: Namespace) -> list[dict[str, Any]]:
    """Measure and print it."""
    print(f"{options.uncounted:,} new letters, counted by one worker on PostgreSQL; goal: {GOAL_SECONDS:g} s")
    try:
        with PostgresServer(extra_settings=SERVER_SETTINGS) as server, RedisServer() as redis:
            rows = run_with_django(
                "bench.counted",
                str(options.uncounted),
                database=server.django_database(),
                BENCH_BROKER=redis.url,
            )
    except ServerMissing as missing:
        print(missing)
        return []
    for row in rows:
        print(
            f"first groups after {row['first_seconds']:g} s, all {row['letters']:,} letters in "
            f"{row['groups']:,} groups after {row['all_seconds']:g} s"
            f"{'' if row['all_seconds'] < GOAL_SECONDS else '  SLOW'}"
        )
    return rows
