"""Throughput of one worker, hardened and plain, in alternating pairs."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from celery import Celery

from hardening.testing.processes import ManagedProcess

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Case:
    """One cell of the table. `prefetch` of plain Celery: None leaves Celery's default of 4."""

    broker: str
    pool: str
    task: str
    concurrency: int
    messages: int
    prefetch: int | None


CASES = tuple(
    Case(broker, pool, task, concurrency, messages, prefetch)
    for broker in ("redis", "rabbitmq")
    for pool, task, concurrency, messages, prefetch in (
        ("prefork", "noop", 2, 3000, 1),
        ("prefork", "wait_100_ms", 8, 400, 1),
        ("gevent", "noop", 20, 3000, 2),
        ("gevent", "wait_100_ms", 50, 2000, 2),
    )
)


@dataclass(frozen=True)
class Outcome:
    """Rates in tasks a second; `ratios` are hardened / plain, one for each pair."""

    case: Case
    plain: tuple[float, ...]
    hardened: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(h / p for h, p in zip(self.hardened, self.plain, strict=True))

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self.case),
            "plain_per_second": [round(rate, 1) for rate in self.plain],
            "hardened_per_second": [round(rate, 1) for rate in self.hardened],
            "ratio_median": round(statistics.median(self.ratios), 4),
            "ratio_min": round(min(self.ratios), 4),
            "ratio_max": round(max(self.ratios), 4),
        }


def measure(case: Case, *, broker_url: str, result_url: str, pairs: int) -> Outcome:
    """Run `pairs` pairs; each pair in the other order than the one before it."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as directory:
        for number in range(pairs):
            for hardened in (True, False) if number % 2 else (False, True):
                run = Path(directory) / f"{number}-{hardened}"
                run.mkdir()
                rates[hardened].append(_rate(case, hardened, broker_url, result_url, run))
                shutil.rmtree(run)
    return Outcome(case, tuple(rates[False]), tuple(rates[True]))


def _rate(case: Case, hardened: bool, broker_url: str, result_url: str, directory: Path) -> float:
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DJANGO_SETTINGS_MODULE": "bench.project.settings",
        "BENCH_HARDENED": "1" if hardened else "0",
        "BENCH_BROKER": broker_url,
        "BENCH_RESULTS": result_url,
        "BENCH_DATABASE": str(directory / "database.sqlite3"),
    }
    if case.prefetch is not None:
        env["BENCH_PREFETCH"] = str(case.prefetch)
    subprocess.run(
        [sys.executable, "-m", "django", "migrate", "--verbosity", "0"], env=env, cwd=ROOT, check=True
    )
    first, last = directory / "first", directory / "last"
    _publish(case, broker_url, first, last)
    with _worker(case, env, directory):
        deadline = time.monotonic() + 120
        while not (last.exists() and last.read_text()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{case} did not end: {(directory / 'worker.log').read_text()[-2000:]}")
            time.sleep(0.05)
    return case.messages / (float(last.read_text()) - float(first.read_text()))


def _publish(case: Case, broker_url: str, first: Path, last: Path) -> None:
    # All messages are there before the worker starts: its own speed is measured, not the publisher's.
    app = Celery("publisher", broker=broker_url, set_as_current=False)
    with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
        app.send_task("mark", (str(first),), producer=producer)
        for _ in range(case.messages):
            app.send_task(case.task, producer=producer)
        app.send_task("mark", (str(last),), producer=producer)
    app.close()


@contextmanager
def _worker(case: Case, env: dict[str, str], directory: Path) -> Iterator[None]:
    command = [
        *(sys.executable, "-m", "celery", "-A", "bench.project", "worker", "--loglevel", "WARNING"),
        *("--pool", case.pool, "--concurrency", str(case.concurrency)),
        *("--without-mingle", "--without-gossip"),
    ]
    with ManagedProcess(command, log_path=directory / "worker.log", env=env, cwd=ROOT):
        yield
