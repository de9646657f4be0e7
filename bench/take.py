"""Taking a message in one step (HARDENING["LEASE"]["ATOMIC_TAKE"]), in kombu's way, and by plain Celery.

Throughput of no-op tasks that are all there, and the time from publishing one to its start in a worker that
is idle.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.figures import summary
from bench.stand import Setup, Stand, wait_for
from bench.throughput import CASES, LIMIT_SECONDS, Case, DidNotEnd, Runs
from hardening.testing.errors import ProcessError
from hardening.testing.servers import RedisServer

__all__ = ["run"]

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "in one step": ("hardened", {"LEASE": {"ATOMIC_TAKE": True}}),
    "kombu's way": ("hardened", {"LEASE": {"ATOMIC_TAKE": False}}),
    "plain": ("plain", {}),
}
LATENCIES = 20
_SETTLE_SECONDS = 3.0


@dataclass
class Outcome:
    """One pool: rates in tasks a second, latencies in seconds, by the name of the variant."""

    case: Case
    rates: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in VARIANTS})
    cpu: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in VARIANTS})
    """Processor seconds of the whole worker for a task: less noisy than its pace."""

    latencies: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in VARIANTS})
    problems: list[str] = field(default_factory=list)

    def ratio(self, name: str) -> float | None:
        """To plain, of the medians."""
        ours, plain = self.rates[name], self.rates["plain"]
        return statistics.median(ours) / statistics.median(plain) if ours and plain else None

    def as_dict(self) -> dict[str, Any]:
        return {
            "pool": self.case.pool,
            "task": self.case.task,
            "variants": [
                {
                    "name": name,
                    "per_second": [round(rate, 1) for rate in self.rates[name]],
                    "cpu_microseconds_per_task": [round(used * 1e6) for used in self.cpu[name]],
                    "ratio_to_plain": _rounded(self.ratio(name)),
                    "latency_milliseconds": summary([each * 1e3 for each in self.latencies[name]]),
                }
                for name in VARIANTS
            ],
            "problems": self.problems,
        }


def run(options: Namespace) -> list[dict[str, Any]]:
    """Measure and print both pools."""
    print(
        "Redis: no-op tasks a second, median of alternating runs; processor time of the whole worker\n"
        "for a task; milliseconds from publishing to the start on an idle worker.\n"
        f"{'pool':<9}{'taken':<14}{'a second':>9}{'to plain':>10}{'cpu us':>8}{'p50 ms':>9}{'p99 ms':>9}"
    )
    cases = [case for case in CASES if case.broker == "redis" and case.task == "noop"]
    return [_pool(case, options.rounds).as_dict() for case in cases if options.only in case.pool]


def _pool(case: Case, rounds: int) -> Outcome:
    outcome = Outcome(case)
    with RedisServer() as server, tempfile.TemporaryDirectory() as name:
        stand = Stand(server.url_for(0), server.url_for(1), Path(name))
        try:
            _measure(case, stand, rounds, outcome)
        except (ProcessError, DidNotEnd) as exc:
            outcome.problems.append(str(exc))
    for name in VARIANTS:
        rates, latencies = outcome.rates[name], summary([each * 1e3 for each in outcome.latencies[name]])
        ratio = outcome.ratio(name)
        print(
            f"{case.pool:<9}{name:<14}{statistics.median(rates) if rates else 0:>9.1f}"
            f"{f'{ratio:.3f}' if ratio else '-':>10}"
            f"{statistics.median(outcome.cpu[name]) * 1e6 if outcome.cpu[name] else 0:>8.0f}"
            f"{latencies.get('p50', 0):>9.1f}{latencies.get('p99', 0):>9.1f}",
            flush=True,
        )
    for problem in outcome.problems:
        print(problem.splitlines()[0])
    return outcome


def _measure(case: Case, stand: Stand, rounds: int, outcome: Outcome) -> None:
    runs = Runs(case, stand)
    for number in range(rounds):
        for name in list(VARIANTS) if number % 2 else reversed(VARIANTS):
            rate, cpu = runs.run(_setup(case, name), LIMIT_SECONDS)
            outcome.rates[name].append(rate)
            outcome.cpu[name].append(cpu)
    for name in VARIANTS:
        outcome.latencies[name] = _latencies(_setup(case, name), stand, stand.directory / f"since {name}")


def _setup(case: Case, name: str) -> Setup:
    variant, hardening = VARIANTS[name]
    return case.setup(variant, hardening=hardening)


def _latencies(setup: Setup, stand: Stand, path: Path) -> list[float]:
    path.touch()
    worker = stand.ready_worker(setup)
    app = stand.publisher()
    try:
        with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
            app.send_task("noop", producer=producer)  # What is made at the first message is not measured.
            time.sleep(_SETTLE_SECONDS)
            for number in range(LATENCIES):
                # Not in step with anything that a worker does every second.
                time.sleep(random.uniform(0.2, 0.9))
                app.send_task("since", (str(path), time.monotonic()), producer=producer)
                wanted = number + 1
                if not wait_for(lambda: len(_lines(path)) >= wanted, worker, LIMIT_SECONDS):  # noqa: B023
                    raise ProcessError("an idle worker took no message")
    finally:
        app.close()
        worker.kill()
    return [float(line) for line in _lines(path)]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 4)
