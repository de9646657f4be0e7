"""A leading Beat with many schedules: how late messages are sent, and what a tick costs, on both stores.

All begin together, with periods of 30 to 90 s, evenly: in the minute from the 30th second on each is due once
or twice, spread over the whole of it. What is late is told by the messages: when they were published, and for
which due time. No worker takes them.
"""

from __future__ import annotations

import json
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import redis

from bench.figures import summary
from bench.stand import Setup, Stand, cpu_seconds, wait_for
from hardening.core.identity import BEAT_HEADER, FIRST_HEADER
from hardening.testing.processes import ManagedProcess
from hardening.testing.servers import PostgresServer, RedisServer

__all__ = ["run"]

SECONDS = 60.0
_BEGIN_WITHIN_SECONDS = 120.0
_QUEUE = "beat"
_SETUP = Setup(variant="hardened", pool="prefork", concurrency=1)
_STORES: dict[str, dict[str, Any]] = {
    "redis": {},
    "postgresql": {
        "LOCK": {"BACKEND": "beat_leader.locks.database.DatabaseLock"},
        "STORE": {"BACKEND": "beat_leader.stores.database"},
    },
}


def run(options: Namespace) -> list[dict[str, Any]]:
    """Measure and print both stores."""
    print(f"One leading Beat, {options.schedules} schedules, due times spread; over {SECONDS:g} s:")
    print(
        f"{'store':<12}{'messages':>9}{'a second':>9}{'late p50':>9}{'p99':>7}{'max':>7}{'cpu':>6}{'each':>9}"
    )
    return [_row(store, options.schedules) for store in _STORES if options.only in store]


def _row(store: str, schedules: int) -> dict[str, Any]:
    with (
        RedisServer() as broker,
        RedisServer() as results,
        PostgresServer() as postgres,
        tempfile.TemporaryDirectory() as directory,
    ):
        env = {
            "BENCH_SCHEDULES": str(schedules),
            "BENCH_LEADER": json.dumps({"SOURCE": "code", "HEARTBEAT_FILE": "", **_STORES[store]}),
        }
        if store == "postgresql":
            env["BENCH_SERVER"] = json.dumps(postgres.django_database())
        beat = Stand(broker.url, results.url, Path(directory)).beat(_SETUP, **env)
        try:
            return _measured(store, beat, broker)
        finally:
            beat.kill()


def _measured(store: str, beat: ManagedProcess, broker: RedisServer) -> dict[str, Any]:
    with redis.Redis.from_url(broker.url) as client:
        assert wait_for(lambda: client.llen(_QUEUE), beat, _BEGIN_WITHIN_SECONDS), beat.log_tail()
        before = cpu_seconds(beat)
        time.sleep(SECONDS)
        cpu = cpu_seconds(beat) - before
        late = [_late_ms(json.loads(raw)["headers"]) for raw in client.lrange(_QUEUE, 0, -1)]
    figures = summary(late, digits=1)
    share, each = cpu / SECONDS, 1000 * cpu / len(late)
    row = {
        "store": store,
        "messages": len(late),
        "late_ms": figures,
        "cpu_share": round(share, 3),
        "cpu_ms_each": round(each, 2),
    }
    print(
        f"{store:<12}{len(late):>9}{len(late) / SECONDS:>9.0f}{figures['p50']:>6.0f} ms"
        f"{figures['p99']:>7.0f}{figures['max']:>7.0f}{share:>6.0%}{each:>6.2f} ms",
        flush=True,
    )
    return row


def _late_ms(headers: dict[str, Any]) -> float:
    due_ms = int(headers[BEAT_HEADER].partition(" ")[0])
    return float(headers[FIRST_HEADER].partition(" ")[0]) * 1000 - due_ms
