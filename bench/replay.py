"""Replays of very many letters: how many a second `dlq_operate` sends, and how well a rate is kept.

PostgreSQL and Redis of this program's own, letters from `dlq_make_letters`, one process of `dlq_operate`,
and a consumer that only empties the queues and counts what it finds. Each message is claimed, staged,
published with the broker's answer and marked. Goals: 2,000 a second without a pace on two cores; a rate
within 5 % of what was asked for, by one operation and by two that share it from two processes.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from bench.letters import SERVER_SETTINGS, run_with_django
from hardening.testing.errors import ServerMissing
from hardening.testing.servers import PostgresServer, RedisServer

__all__ = ["run"]

GOAL_PER_SECOND = 2_000.0
GOAL_OFF_PERCENT = 5.0


def run(options: Namespace) -> list[dict[str, Any]]:
    """Measure and print all rows."""
    print(
        f"Staged replay, Redis and PostgreSQL. Goals: {GOAL_PER_SECOND:,.0f} a second without a pace, a\n"
        f"rate within {GOAL_OFF_PERCENT:g} %. cpu: processor microseconds of the sender for a message.\n"
        f"{'':<34}{'messages':>10}{'a second':>10}{'off':>8}{'cpu':>8}{'doubled':>9}{'missing':>9}"
    )
    try:
        with PostgresServer(extra_settings=SERVER_SETTINGS) as server, RedisServer() as redis:
            rows = run_with_django(
                "bench.replaying",
                *(str(options.replays), str(options.replay_rate), str(options.replay_seconds)),
                database=server.django_database(),
                BENCH_BROKER=redis.url_for(0),
                BENCH_RESULTS=redis.url_for(1),
            )
    except ServerMissing as missing:
        print(missing)
        return []
    for row in rows:
        off = f"{row['off_percent']:+.1f} %" if row["off_percent"] is not None else "-"
        print(
            f"{row['what']:<34}{row['messages']:>10,}{row['per_second']:>10,.0f}{off:>8}"
            f"{row['cpu_microseconds']:>8,}{row['doubled']:>9}{row['missing']:>9}"
        )
    return rows
