"""Commands that Redis executes: for each task, and for a worker that is idle; hardened and plain.

Counted by the server (INFO commandstats), which counts what scripts call as well. How much of it that is,
MONITOR says: the rest was sent, each command of it a round trip or a part of a pipeline. Broker and results
are on servers of their own.
"""

from __future__ import annotations

import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import redis

from bench.stand import Stand, cpu_seconds, wait_for
from bench.throughput import LIMIT_SECONDS, Case
from hardening.testing.errors import ProcessError
from hardening.testing.servers import RedisServer

__all__ = ["Counted", "counted", "run"]

_SETTLE_SECONDS = 6.0
_OUR_OWN = ("info", "monitor", "hello", "ping")
"""What this program sends itself, or a client when it connects."""


@dataclass
class Counted:
    """Commands by name."""

    executed: Counter[str] = field(default_factory=Counter)
    in_scripts: Counter[str] = field(default_factory=Counter)

    @property
    def sent(self) -> Counter[str]:
        """Those that no script called."""
        return self.executed - self.in_scripts


def run(options: Namespace) -> list[dict[str, Any]]:
    """Measure and print both tables."""
    print(
        f"Redis commands for each of {options.tasks} no-op tasks, prefork. sent: by the worker; in scripts:\n"
        "called by scripts that it sent; results: of the result backend, all sent."
    )
    print(f"{'':<10}{'sent':>7}{'in scripts':>12}{'results':>9}  by name, broker")
    rows = [_per_task(variant, options.tasks) for variant in ("plain", "hardened")]
    print(f"\nRedis commands of one idle worker in a second, over {options.idle:g} s.")
    print(f"{'pool':<9}{'':<10}{'sent':>7}{'in scripts':>12}{'results':>9}{'cpu %':>7}  by name, broker")
    # Idle workers do not disturb each other.
    with ThreadPoolExecutor(4) as threads:
        idle = [
            threads.submit(_idle, variant, pool, options.idle)
            for pool in ("prefork", "gevent")
            for variant in ("plain", "hardened")
        ]
    for each in idle:
        row = each.result()
        rows.append(row)
        print(
            f"{row['pool']:<9}{row['variant']:<10}{row['sent']:>7.2f}{row['in_scripts']:>12.2f}"
            f"{row['results']:>9.2f}{row['cpu_percent']:>7.2f}  {_named(row)}",
            flush=True,
        )
    return rows


def _per_task(variant: str, tasks: int) -> dict[str, Any]:
    case = Case("redis", "prefork", "noop", 2, tasks)
    with _servers() as (broker, results, stand):
        first, last = (stand.directory / name for name in ("first", "last"))
        app = stand.publisher()
        with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
            app.send_task("mark", (str(first),), producer=producer)
            for _ in range(tasks):
                app.send_task("noop", producer=producer)
            app.send_task("mark", (str(last),), producer=producer)
        app.close()
        worker = stand.worker(case.setup(variant))
        try:
            wait_for(first.exists, worker, LIMIT_SECONDS)
            with counted(broker) as of_broker, counted(results) as of_results:
                if not wait_for(last.exists, worker, LIMIT_SECONDS):
                    raise ProcessError(f"{variant} did not end")
        finally:
            worker.kill()
    row = _row("task", variant, case.pool, of_broker, of_results, tasks)
    print(
        f"{variant:<10}{row['sent']:>7.2f}{row['in_scripts']:>12.2f}{row['results']:>9.2f}  {_named(row)}",
        flush=True,
    )
    return row


def _idle(variant: str, pool: str, seconds: float) -> dict[str, Any]:
    green = pool == "gevent"
    case = Case("redis", pool, "noop", 20 if green else 2, 0)
    with _servers() as (broker, results, stand):
        worker = stand.ready_worker(case.setup(variant))
        try:
            app = stand.publisher()
            app.send_task("noop")  # Everything that a worker makes at its first message is there.
            app.close()
            time.sleep(_SETTLE_SECONDS)
            before = cpu_seconds(worker)
            with counted(broker) as of_broker, counted(results) as of_results:
                time.sleep(seconds)
            used = cpu_seconds(worker) - before
        finally:
            worker.kill()
    row = _row("idle second", variant, pool, of_broker, of_results, seconds)
    return {**row, "cpu_percent": round(100 * used / seconds, 2)}


def _row(
    per: str, variant: str, pool: str, of_broker: Counted, of_results: Counted, divisor: float
) -> dict[str, Any]:
    def each(counter: Counter[str]) -> dict[str, float]:
        return {name: round(calls / divisor, 3) for name, calls in counter.most_common() if calls}

    return {
        "per": per,
        "variant": variant,
        "pool": pool,
        "sent": round(of_broker.sent.total() / divisor, 3),
        "in_scripts": round(of_broker.in_scripts.total() / divisor, 3),
        "results": round(of_results.executed.total() / divisor, 3),
        "sent_by_name": each(of_broker.sent),
        "in_scripts_by_name": each(of_broker.in_scripts),
        "results_by_name": each(of_results.executed),
    }


def _named(row: dict[str, Any]) -> str:
    names = ", ".join(f"{name} {calls:.2f}" for name, calls in row["sent_by_name"].items() if calls >= 0.01)
    scripts = ", ".join(
        f"{name} {calls:.2f}" for name, calls in row["in_scripts_by_name"].items() if calls >= 0.01
    )
    return f"{names}; in scripts: {scripts}" if scripts else names


@contextmanager
def _servers() -> Iterator[tuple[RedisServer, RedisServer, Stand]]:
    with RedisServer() as broker, RedisServer() as results, tempfile.TemporaryDirectory() as name:
        yield broker, results, Stand(broker.url, results.url, Path(name))


@contextmanager
def counted(server: RedisServer) -> Iterator[Counted]:
    """Count what a server executes inside the `with`; the figures are there behind it."""
    found = Counted()
    # A server that has nothing to do is silent: no time-out.
    with redis.Redis.from_url(server.url, socket_timeout=None) as client, client.monitor() as monitor:
        listening = Thread(target=_listen, args=(monitor, found.in_scripts), daemon=True)
        before = _calls(client)
        listening.start()
        try:
            yield found
        finally:
            found.executed.update(_calls(client) - before)
            client.echo(_END)
            listening.join(30)


_END = "the end of what is counted"


def _listen(monitor: Any, in_scripts: Counter[str]) -> None:
    while True:
        line = monitor.next_command()
        if line["command"].endswith(_END):
            return
        if line["client_type"] == "lua":
            in_scripts[line["command"].split(" ", 1)[0].lower()] += 1


def _calls(client: redis.Redis) -> Counter[str]:
    stats: Any = client.info("commandstats")
    names = {key.removeprefix("cmdstat_"): int(value["calls"]) for key, value in stats.items()}
    return Counter({name: calls for name, calls in names.items() if name.split("|")[0] not in _OUR_OWN})
