"""Recovery: how long after SIGKILL of a whole worker its task begins on another one that was idle.

A chain. The worker that took over becomes the next victim, a fresh one the next standby, and each kill has
a message of its own. So each kill costs one start, and no standby was ever busy. The moments of the kills
are spread evenly over the time between two renewals, since a lease that was just renewed lasts longest.
Both times are of the clock that all processes of a machine share.

Plain Celery finds a lost message when the visibility timeout is over and the next sweep looks, an hour and
more with its defaults. That is computed from kombu's settings and not waited for; measured is a short
timeout, killed soon after a sweep of the standby's, which is nearly the worst moment. It must be longer than
the preparations: plain workers take running tasks for lost when it is over.
"""

from __future__ import annotations

import random
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from kombu.transport.redis import Channel

from bench.figures import seconds_of, summary
from bench.stand import Setup, Stand, wait_for
from hardening.testing.errors import ProcessError
from hardening.testing.processes import ManagedProcess
from hardening.testing.servers import RedisServer

__all__ = ["run"]

DEFAULT_LEASE = {"SECONDS": "12 s", "RENEW_EVERY": "4 s"}
TUNED_LEASE = {"SECONDS": "3 s", "RENEW_EVERY": "1 s"}
VISIBILITY_TIMEOUT_SECONDS = 30
PLAIN_KILLS = 1
KILLS_OF_DELIVERED_BEFORE = 5
_START_SECONDS = 30.0
_FIRST_SWEEP_OF_KOMBU_SECONDS = 11.5
"""A worker has made its first sweep by then, and makes the next one a whole interval after it."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row. `deaths` is how often its worker is killed under one message; the last one is measured."""

    name: str
    pool: str
    kills: int
    limit_seconds: float
    settle_seconds: float = 0.5
    spread_seconds: float = 0.0
    goal_seconds: float | None = None
    deaths: int = 1
    variant: str = "hardened"
    hardening: Mapping[str, Any] = field(default_factory=dict)
    celery: Mapping[str, Any] = field(default_factory=dict)

    def setup(self) -> Setup:
        """Every worker of the chain."""
        return Setup(
            variant=self.variant,
            pool=self.pool,
            concurrency=2,
            hardening=self.hardening,
            celery={"CELERY_TASK_TIME_LIMIT": 3600, **self.celery},
        )


@dataclass
class Outcome:
    """Seconds from a kill to the start elsewhere."""

    case: Case
    seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        case = self.case
        return {
            "name": case.name,
            "pool": case.pool,
            "variant": case.variant,
            "deaths": case.deaths,
            "hardening": dict(case.hardening),
            "celery": dict(case.celery),
            "goal_p99_seconds": case.goal_seconds,
            **summary(self.seconds),
            "seconds": [round(each, 3) for each in self.seconds],
            "problems": self.problems,
        }


def cases(kills: int, plain_kills: int) -> list[Case]:
    """All rows, the longest first."""
    options = {"visibility_timeout": VISIBILITY_TIMEOUT_SECONDS}
    plain = {"CELERY_BROKER_TRANSPORT_OPTIONS": options}
    rows = [
        Case(
            name="plain, visibility_timeout 30 s",
            pool=pool,
            kills=plain_kills,
            limit_seconds=VISIBILITY_TIMEOUT_SECONDS + _kombu_sweep_seconds() + _START_SECONDS,
            settle_seconds=_FIRST_SWEEP_OF_KOMBU_SECONDS,
            variant="plain",
            celery=plain,
        )
        for pool in ("prefork", "gevent")
    ]
    for name, lease, pause, goal, deaths in (
        ("lease 12 s, renewed every 4 s", DEFAULT_LEASE, 4.0, 15.0, 1),
        ("lease 12 s, killed twice", DEFAULT_LEASE, 4.0, None, 2),
        ("lease 3 s, renewed every 1 s", TUNED_LEASE, 1.0, 5.0, 1),
        ("lease 3 s, killed twice", TUNED_LEASE, 1.0, None, 2),
    ):
        rows += [
            Case(
                name=name,
                pool=pool,
                kills=kills if deaths == 1 else min(kills, KILLS_OF_DELIVERED_BEFORE),
                limit_seconds=90.0,
                spread_seconds=pause,
                goal_seconds=goal,
                deaths=deaths,
                hardening={"LEASE": lease},
            )
            for pool in ("prefork", "gevent")
        ]
    return [row for row in rows if row.kills]


def run(options: Namespace) -> list[dict[str, Any]]:
    """Measure and print every row, some side by side: a chain mostly waits."""
    rows = [
        row for row in cases(options.kills, options.plain_kills) if options.only in f"{row.name} {row.pool}"
    ]
    print(
        "Seconds from SIGKILL of a whole worker to the start of its task on an idle one like it, Redis.\n"
        "Each kill has a message of its own; killed twice: it had been recovered once before, the second\n"
        "recovery is measured. plain is killed soon after its standby's sweep, near the worst moment.\n"
        f"{'settings':<32}{'pool':<9}{'kills':>6}{'p50':>8}{'p99':>8}{'min':>8}{'max':>8}{'goal':>9}"
    )
    with ThreadPoolExecutor(max(1, options.side_by_side)) as threads:
        outcomes = [outcome.as_dict() for outcome in threads.map(_row, rows)]
    computed = computed_of_plain()
    print(
        f"plain, Celery's defaults, computed not measured: {computed['from_seconds']} to "
        f"{computed['to_seconds']} s on prefork\n(the visibility timeout, then up to "
        f"{computed['sweep_seconds']} s until kombu's next sweep; an idle gevent worker makes none)"
    )
    return [*outcomes, computed]


def computed_of_plain() -> dict[str, Any]:
    """What kombu's own defaults come to."""
    timeout, sweep = int(Channel.visibility_timeout), _kombu_sweep_seconds()
    return {
        "name": "plain, defaults",
        "pool": "prefork",
        "computed": True,
        "visibility_timeout_seconds": timeout,
        "sweep_seconds": sweep,
        "from_seconds": timeout,
        "to_seconds": timeout + sweep,
    }


def _kombu_sweep_seconds() -> int:
    # Before these could be set, kombu had the same numbers in its code.
    every = getattr(Channel, "unacked_restore_interval", 10)
    of_so_many = getattr(Channel, "unacked_restore_throttle", 10)
    return int(every * of_so_many)


_printing = Lock()


def _row(case: Case) -> Outcome:
    outcome = Outcome(case)
    with RedisServer() as server, tempfile.TemporaryDirectory() as name:
        chain = _Chain(case, Stand(server.url_for(0), server.url_for(1), Path(name)), outcome)
        try:
            chain.run()
        except ProcessError as exc:
            outcome.problems.append(str(exc))
        finally:
            chain.end()
    problems = "; ".join(problem.splitlines()[0] for problem in outcome.problems)
    goal = f"<= {case.goal_seconds:g}" if case.goal_seconds else "-"
    with _printing:
        print(
            f"{case.name:<32}{case.pool:<9}{len(outcome.seconds):>6}{seconds_of(outcome.seconds)}{goal:>9}"
            f"  {problems}".rstrip(),
            flush=True,
        )
    return outcome


class _Chain:
    """The kills of one row."""

    def __init__(self, case: Case, stand: Stand, outcome: Outcome) -> None:
        self._case = case
        self._stand = stand
        self._outcome = outcome
        self._workers: list[ManagedProcess] = []
        self._publisher = stand.publisher()

    def run(self) -> None:
        """Kill and measure as often as the case says."""
        case = self._case
        # Evenly spread, in an order that has nothing to do with anything.
        waits = [
            case.spread_seconds * (number + random.random()) / case.kills for number in range(case.kills)
        ]
        random.shuffle(waits)
        self._add()
        for number, wait in enumerate(waits):
            starts = self._stand.directory / f"starts-{number}"
            starts.touch()
            self._publisher.send_task("outlast", (str(starts), case.deaths + 1))
            if not wait_for(partial(self._count, starts), self._workers[-1], _START_SECONDS):
                raise ProcessError("a task did not begin")
            took = [self._killed(starts, death, wait) for death in range(1, case.deaths + 1)]
            if None not in took:
                self._outcome.seconds.append(took[-1] or 0.0)

    def end(self) -> None:
        """Kill what is left."""
        for worker in self._workers:
            worker.kill()
        self._publisher.close()

    def _killed(self, starts: Path, death: int, wait: float) -> float | None:
        """Kill the worker that runs it; None if another one had begun before that."""
        victim, standby = self._workers[-1], self._add()
        time.sleep(self._case.settle_seconds + wait)
        early = self._count(starts) != death
        killed_at = time.monotonic()
        victim.kill()
        self._workers.remove(victim)
        if early:
            self._outcome.problems.append("a task began elsewhere while its worker lived; not counted")
            return None
        if not wait_for(lambda: self._count(starts) > death, standby, self._case.limit_seconds):
            raise ProcessError(f"a task did not begin elsewhere in {self._case.limit_seconds:g} s")
        return float(starts.read_text().splitlines()[death]) - killed_at

    def _add(self) -> ManagedProcess:
        worker = self._stand.ready_worker(self._case.setup())
        self._workers.append(worker)
        return worker

    def _count(self, starts: Path) -> int:
        return len(starts.read_text().splitlines())
