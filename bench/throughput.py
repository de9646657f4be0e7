"""Throughput of one worker: hardened and plain in alternating pairs, and once with Celery's defaults."""

from __future__ import annotations

import statistics
import tempfile
from argparse import Namespace
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import redis

from bench.stand import Setup, Stand, cpu_seconds, wait_for
from hardening.saturation import connections_row, green_prefetch
from hardening.testing.errors import ProcessError
from hardening.testing.servers import RabbitMQServer, RedisServer, ServerMissing

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

    def setup(self, variant: str, **more: Any) -> Setup:
        """The worker that is measured."""
        return Setup(
            variant=variant,
            pool=self.pool,
            concurrency=self.concurrency,
            prefetch=self.prefetch,
            max_connections=self.max_connections,
            **more,
        )


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


def run(options: Namespace) -> list[dict[str, Any]]:
    """Measure and print every row that was asked for."""
    outcomes: list[Outcome] = []
    print(
        "Tasks a second of one worker, all late acks. plain: prefetch and connections as hardened has them;\n"
        "defaults: only late acks set (one run, gevent only). Alternating pairs, median (min to max).\n"
        "cpu: processor time of the whole worker for a task, hardened / plain.\n"
        f"{'broker':<9} {'pool':<8} {'task':<12}{'plain':>9} {'hardened':>9}  {'hardened / plain':<32}"
        f"{'cpu':>8}{'defaults':>9}"
    )
    with RedisServer() as redis_server:
        for broker in ("redis", "rabbitmq"):
            cases = [c for c in CASES if c.broker == broker]
            cases = [c for c in cases if options.only in f"{c.broker} {c.pool} {c.task}"]
            if not cases:
                continue
            if broker == "redis":
                outcomes += [
                    _row(c, redis_server.url_for(0), redis_server.url_for(1), options.pairs) for c in cases
                ]
                continue
            try:
                with RabbitMQServer() as rabbit:
                    outcomes += [_row(c, rabbit.url, redis_server.url_for(1), options.pairs) for c in cases]
            except ServerMissing as missing:
                print(f"rabbitmq rows left out: {missing}")
    return [outcome.as_dict() for outcome in outcomes]


def _row(case: Case, broker_url: str, result_url: str, pairs: int) -> Outcome:
    outcome = measure(case, broker_url=broker_url, result_url=result_url, pairs=pairs)
    plain, hardened, defaults = (_median(outcome.rates[name]) for name in ("plain", "hardened", "defaults"))
    ratios = outcome.ratios
    ratio = (
        f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)} pairs)"
        if ratios
        else "-"
    )
    cpu = f"{outcome.cpu_ratio:.3f}" if outcome.cpu_ratio else "-"
    problems = "; ".join(problem.splitlines()[0] for problem in outcome.problems)
    print(
        f"{case.broker:<9} {case.pool:<8} {case.task:<12}"
        f"{plain:>9} {hardened:>9}  {ratio:<32}{cpu:>8}{defaults:>9}  {problems}".rstrip(),
        flush=True,
    )
    return outcome


def _median(rates: list[float]) -> str:
    return f"{statistics.median(rates):.1f}" if rates else "-"


def measure(case: Case, *, broker_url: str, result_url: str, pairs: int) -> Outcome:
    """Run `pairs` pairs, each in the other order than the one before it, then Celery's defaults on gevent."""
    outcome = Outcome(case)
    with tempfile.TemporaryDirectory() as name:
        runs = Runs(case, Stand(broker_url, result_url, Path(name)))
        try:
            for number in range(pairs):
                for variant in ("hardened", "plain") if number % 2 else ("plain", "hardened"):
                    rate, cpu = runs.run(case.setup(variant), LIMIT_SECONDS)
                    outcome.rates[variant].append(rate)
                    outcome.cpu[variant].append(cpu)
        except (DidNotEnd, ProcessError) as exc:
            outcome.problems.append(str(exc))
        if case.green:
            try:
                outcome.rates["defaults"].append(
                    runs.run(case.setup("defaults"), LIMIT_OF_DEFAULTS_SECONDS)[0]
                )
            except DidNotEnd as exc:
                outcome.problems.append(str(exc))
                outcome.rates["defaults"].append(exc.rate)
            except ProcessError as exc:
                outcome.problems.append(str(exc))
    return outcome


@dataclass
class Runs:
    """Runs of one worker each that finds all messages of a case there."""

    case: Case
    stand: Stand

    def run(self, setup: Setup, limit_seconds: float) -> tuple[float, float]:
        """Tasks a second, and processor seconds a task."""
        first, last = self.stand.directory / "first", self.stand.directory / "last"
        first.unlink(missing_ok=True)
        last.unlink(missing_ok=True)
        self._publish(first, last)
        worker = self.stand.worker(setup)
        try:
            wait_for(lambda: _text(first), worker, LIMIT_SECONDS)
            before = cpu_seconds(worker)
            if not wait_for(lambda: _text(last), worker, limit_seconds):
                raise DidNotEnd(setup.variant, self._done(), self.case, limit_seconds)
            used = cpu_seconds(worker) - before
        finally:
            worker.kill()  # There is nothing left to end in good order.
        return self.case.messages / (float(_text(last)) - float(_text(first))), used / self.case.messages

    def _publish(self, first: Path, last: Path) -> None:
        # All messages are there before the worker starts: its own speed is measured, not the publisher's.
        with redis.Redis.from_url(self.stand.result_url) as results:
            results.flushall()
        app = self.stand.publisher()
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
        with redis.Redis.from_url(self.stand.result_url) as results:
            return int(results.dbsize())


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
