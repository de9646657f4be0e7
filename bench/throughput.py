"""Throughput of one worker: hardened and plain in alternating pairs, and once with Celery's defaults."""

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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import redis
from celery import Celery

from hardening.saturation import connections_row, green_prefetch
from hardening.testing.errors import ProcessError
from hardening.testing.processes import ManagedProcess

ROOT = Path(__file__).parents[1]
VARIANTS = ("hardened", "plain", "defaults")
LIMIT_SECONDS = 60.0
LIMIT_OF_DEFAULTS_SECONDS = 20.0


@dataclass(frozen=True)
class Case:
    """One row of the table. `messages` are so many that a run takes four seconds or more."""

    broker: str
    pool: str
    task: str
    concurrency: int
    messages: int

    @property
    def green(self) -> bool:
        return self.pool == "gevent"

    @property
    def prefetch(self) -> int:
        """What a hardened worker uses."""
        transport = "amqp" if self.broker == "rabbitmq" else self.broker
        return green_prefetch(transport) if self.green else 1

    @property
    def max_connections(self) -> int | None:
        """What a hardened worker sets; None: it leaves the option alone."""
        if not self.green or self.broker != "redis":
            return None
        return int(connections_row(self.concurrency).value)


CASES = tuple(
    Case(broker, pool, task, concurrency, messages)
    for broker in ("redis", "rabbitmq")
    for pool, task, concurrency, messages in (
        ("prefork", "noop", 2, 5000),
        ("prefork", "wait_100_ms", 8, 400),
        ("gevent", "noop", 20, 1500),
        ("gevent", "wait_100_ms", 50, 1200),
    )
)


class DidNotEnd(Exception):
    """A run reached its limit. `done` of its messages were through by then."""

    def __init__(self, variant: str, done: int, case: Case, seconds: float) -> None:
        self.rate = done / seconds
        super().__init__(f"{variant} did not end: {done} of {case.messages} in {seconds:.0f} s")


@dataclass
class Outcome:
    """Rates in tasks a second; `ratios` are hardened / plain, one for each pair."""

    case: Case
    rates: dict[str, list[float]] = field(default_factory=lambda: {variant: [] for variant in VARIANTS})
    cpu: dict[str, list[float]] = field(default_factory=lambda: {variant: [] for variant in VARIANTS})
    """Processor seconds of the worker and its children for a task: less noisy than its pace."""

    problems: list[str] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [h / p for h, p in zip(self.rates["hardened"], self.rates["plain"], strict=False)]

    @property
    def cpu_ratio(self) -> float | None:
        """Hardened / plain, of the medians."""
        hardened, plain = self.cpu["hardened"], self.cpu["plain"]
        return statistics.median(hardened) / statistics.median(plain) if hardened and plain else None

    def as_dict(self) -> dict[str, Any]:
        ratios = self.ratios
        return {
            **asdict(self.case),
            "prefetch": self.case.prefetch,
            "max_connections": self.case.max_connections,
            **{
                f"{name}_per_second": [round(rate, 1) for rate in rates] for name, rates in self.rates.items()
            },
            "cpu_microseconds_per_task": {
                name: [round(seconds * 1e6) for seconds in used] for name, used in self.cpu.items()
            },
            "cpu_ratio": self.cpu_ratio and round(self.cpu_ratio, 4),
            "ratio_median": round(statistics.median(ratios), 4) if ratios else None,
            "ratio_min": round(min(ratios), 4) if ratios else None,
            "ratio_max": round(max(ratios), 4) if ratios else None,
            "problems": self.problems,
        }


def measure(case: Case, *, broker_url: str, result_url: str, pairs: int) -> Outcome:
    """Run `pairs` pairs, each in the other order than the one before it, then Celery's defaults on gevent."""
    outcome = Outcome(case)
    with tempfile.TemporaryDirectory() as name:
        bench = _Bench(case, broker_url, result_url, Path(name))
        try:
            for number in range(pairs):
                for variant in ("hardened", "plain") if number % 2 else ("plain", "hardened"):
                    rate, cpu = bench.run(variant, LIMIT_SECONDS)
                    outcome.rates[variant].append(rate)
                    outcome.cpu[variant].append(cpu)
        except (DidNotEnd, ProcessError) as exc:
            outcome.problems.append(str(exc))
        if case.green:
            try:
                outcome.rates["defaults"].append(bench.run("defaults", LIMIT_OF_DEFAULTS_SECONDS)[0])
            except DidNotEnd as exc:
                outcome.problems.append(str(exc))
                outcome.rates["defaults"].append(exc.rate)
            except ProcessError as exc:
                outcome.problems.append(str(exc))
    return outcome


@dataclass
class _Bench:
    """One row's servers and directory."""

    case: Case
    broker_url: str
    result_url: str
    directory: Path

    def run(self, variant: str, limit_seconds: float) -> tuple[float, float]:
        """Tasks a second, and processor seconds a task, of one worker that finds all messages there."""
        run = self.directory / "run"
        run.mkdir()
        try:
            env = self._env(variant, run)
            self._migrated(variant, env, run)
            first, last = run / "first", run / "last"
            self._publish(first, last)
            with self._worker(env, run) as worker:
                _wait_for(first, worker, LIMIT_SECONDS)
                before = _cpu_seconds(worker)
                if not _wait_for(last, worker, limit_seconds):
                    raise DidNotEnd(variant, self._done(), self.case, limit_seconds)
                used = _cpu_seconds(worker) - before
            return self.case.messages / (float(_text(last)) - float(_text(first))), used / self.case.messages
        finally:
            shutil.rmtree(run)

    def _env(self, variant: str, run: Path) -> dict[str, str]:
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "bench.project.settings",
            "BENCH_VARIANT": variant,
            "BENCH_BROKER": self.broker_url,
            "BENCH_RESULTS": self.result_url,
            "BENCH_DATABASE": str(run / "database.sqlite3"),
            "BENCH_PREFETCH": str(self.case.prefetch),
        }
        if self.case.max_connections is not None:
            env["BENCH_MAX_CONNECTIONS"] = str(self.case.max_connections)
        return env

    def _migrated(self, variant: str, env: dict[str, str], run: Path) -> None:
        template = self.directory / f"{variant}.sqlite3"
        if not template.exists():
            subprocess.run(
                [sys.executable, "-m", "django", "migrate", "--verbosity", "0", "--skip-checks"],
                env={**env, "BENCH_DATABASE": str(template)},
                cwd=ROOT,
                check=True,
            )
        shutil.copy(template, run / "database.sqlite3")

    def _publish(self, first: Path, last: Path) -> None:
        # All messages are there before the worker starts: its own speed is measured, not the publisher's.
        with redis.Redis.from_url(self.result_url) as results:
            results.flushall()
        app = Celery("publisher", broker=self.broker_url, set_as_current=False)
        with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
            queue = app.amqp.queues["celery"](connection.default_channel)
            queue.declare()
            queue.purge()  # What a run left that did not end.
            app.send_task("mark", (str(first),), producer=producer)
            for _ in range(self.case.messages):
                app.send_task(self.case.task, producer=producer)
            app.send_task("mark", (str(last),), producer=producer)
        app.close()

    def _done(self) -> int:
        with redis.Redis.from_url(self.result_url) as results:
            return int(results.dbsize())

    @contextmanager
    def _worker(self, env: dict[str, str], run: Path) -> Iterator[ManagedProcess]:
        command = [
            *(sys.executable, "-m", "celery", "-A", "bench.project", "worker", "--loglevel", "WARNING"),
            *("--pool", self.case.pool, "--concurrency", str(self.case.concurrency)),
            *("--without-mingle", "--without-gossip"),
        ]
        with ManagedProcess(command, log_path=run / "worker.log", env=env, cwd=ROOT) as process:
            try:
                yield process
            finally:
                process.kill()  # There is nothing left to end in good order.


def _cpu_seconds(worker: ManagedProcess) -> float:
    parent = psutil.Process(worker.pid)
    times = [process.cpu_times() for process in (parent, *parent.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _wait_for(mark: Path, worker: ManagedProcess, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not _text(mark):
        if not worker.is_running:
            raise ProcessError(f"the worker ended by itself\n{worker.log_tail()}")
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
