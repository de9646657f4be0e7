"""Two workers under a constant load, stopped by SIGTERM and started anew in turns; and each task's fate."""

from __future__ import annotations

import re
import signal
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.helpers.wait import wait_until

__all__ = ["GRACE_SECONDS", "Ledger", "roll"]

GRACE_SECONDS = 1.0
SHORT_SECONDS = 0.2
LONG_SECONDS = 3.0
"""Longer than the grace period: a worker that is stopped cuts it, and a fresh one ends it."""

ONE_IN = 12
EVERY_SECONDS = 0.1
_CUT = re.compile(r"running at the end of the grace period, cut and given back: (.*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """What happened, by task id."""

    rounds: int
    sent: tuple[str, ...]
    starts: Counter[str]
    ends: Counter[str]
    retries: Counter[str]
    """How often a start counted so many retries."""

    cut: frozenset[str]
    """Those that a worker says it cut at the end of its grace period."""

    exits: Counter[int]
    letters: int
    left: int
    """Messages that the broker still has."""

    log: str
    """Of all workers."""

    @property
    def lost(self) -> list[str]:
        """Tasks that never ended."""
        return [task_id for task_id in self.sent if not self.ends[task_id]]

    @property
    def unexplained(self) -> list[str]:
        """Tasks that began twice and were not cut."""
        return [task_id for task_id, times in self.starts.items() if times > 1 and task_id not in self.cut]

    def evidence(self) -> str:
        """What the workers said of the tasks that nothing explains."""
        ids = self.unexplained
        said = [line for line in self.log.splitlines() if any(task_id in line for task_id in ids)]
        return "\n".join([str(self), *said])

    def __str__(self) -> str:
        again = sum(times - 1 for times in self.starts.values())
        return (
            f"{self.rounds} rounds, {len(self.sent)} tasks: {len(self.lost)} lost, {again} started again, "
            f"{len(self.unexplained)} of them not cut ({len(self.cut)} were), retries counted "
            f"{dict(self.retries)}, exits {dict(self.exits)}, {self.letters} letters, {self.left} left"
        )


@dataclass
class _Load:
    """Sends tasks at an even rate until it is told to stop."""

    stage: Any
    sent: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            seconds = SHORT_SECONDS if len(self.sent) % ONE_IN else LONG_SECONDS
            self.sent.append(self.stage.send("work_for", seconds).id)


def roll(stage: Any, *, pool: str, rounds: int, letters: Any, left: Any, concurrency: int = 4) -> Ledger:
    """Stop one worker and start another, so often; then let all tasks end."""
    hardening = f'{{"SHUTDOWN": {{"GRACE": "{GRACE_SECONDS:g} s"}}}}'
    exits: Counter[int] = Counter()

    def start(number: int) -> Any:
        return stage.worker(
            pool=pool,
            concurrency=concurrency,
            extra_args=("-n", f"worker-{number}@%h"),
            TEST_HARDENING=hardening,
        )

    workers = [start(0), start(1)]
    with _Load(stage) as load:
        for number in range(rounds):
            wait_until(lambda: len(load.sent) > 10 * (number + 1), 60)  # noqa: B023
            oldest = workers.pop(0)
            oldest.process.send_signal(signal.SIGTERM)
            exits[oldest.process.wait(timeout=60)] += 1
            workers.append(start(number + 2))
    sent = tuple(load.sent)
    wait_until(
        lambda: not set(sent) - {line.split()[1] for line in stage.effects("end ")} and not left(),
        120,
        lambda: f"{left()} messages left; {stage.logs()[-3000:]}",
    )
    began = [line.split() for line in stage.effects("start ")]
    return Ledger(
        rounds=rounds,
        sent=sent,
        starts=Counter(task_id for _, task_id, _ in began),
        ends=Counter(line.split()[1] for line in stage.effects("end ")),
        retries=Counter(retries for _, _, retries in began),
        cut=frozenset(
            task_id.strip()
            for worker in stage.workers
            for ids in _CUT.findall(worker.logs())
            for task_id in ids.split(",")
        ),
        exits=exits,
        letters=letters(),
        left=left(),
        log="\n".join(
            f"{number}: {line}"
            for number, worker in enumerate(stage.workers)
            for line in worker.logs().splitlines()
        ),
    )
