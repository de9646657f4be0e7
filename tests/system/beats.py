"""Beats of one project as processes, and what they sent to a queue that nobody takes from."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import redis

from hardening.core.identity import BEAT_HEADER
from hardening.testing.processes import ManagedProcess
from tests.helpers.wait import wait_until

from .stage import PROJECT, ROOT, Stage

__all__ = ["QUEUE", "Beats", "Message"]

QUEUE = "beats"


@dataclass(frozen=True)
class Message:
    """What a schedule sent: for which due time, under which id, and by which process."""

    due_ms: int
    id: str
    pid: int


@dataclass
class Beats:
    """Beats of one project, and what they sent to a queue that no worker takes from."""

    stage: Stage
    every_ms: int
    settings: dict[str, Any]
    stack: ExitStack
    number: int = 0
    running: dict[int, ManagedProcess] = field(default_factory=dict)

    def start(self, *options: str) -> ManagedProcess:
        self.number += 1
        process = ManagedProcess(
            [sys.executable, "-m", "celery", "-A", PROJECT, "beat", "-l", "INFO", *options],
            log_path=self.stage.directory / f"beat-{self.number}.log",
            env={**os.environ, **self.stage.env(TEST_CELERY=json.dumps(self.settings))},
            cwd=ROOT,
            name=f"beat {self.number}",
        )
        self.stack.enter_context(process)
        self.running[process.pid] = process
        return process

    def sent(self) -> list[Message]:
        """All messages, the first one first."""
        with redis.Redis.from_url(self.stage.broker_url) as client:
            raw = [json.loads(each) for each in reversed(client.lrange(QUEUE, 0, -1))]
        headers = [each["headers"] for each in raw]
        return [
            Message(
                int(each[BEAT_HEADER].split(" ")[0]),
                each["id"],
                int(each["origin"].partition("@")[0].removeprefix("gen")),
            )
            for each in headers
        ]

    def wait_for(self, count: int, timeout: float = 20.0) -> list[Message]:
        return wait_until(
            lambda: sent if len(sent := self.sent()) >= count else [],
            timeout,
            lambda: f"{self.sent()}\n{self.logs()}",
        )

    def sender(self) -> ManagedProcess:
        """Whoever sent the latest, between two due times: what it sent is marked."""
        self.wait_for(len(self.sent()) + 1)
        time.sleep(0.2)
        return self.running[self.sent()[-1].pid]

    def next_of_another(self, pid: int, timeout: float) -> float:
        """How long it takes until another one sends."""
        began = time.monotonic()
        wait_until(lambda: self.sent()[-1].pid != pid, timeout, self.logs)
        return time.monotonic() - began

    def assert_one_for_each_due_time(self, *, repeated: bool = False) -> None:
        """`repeated`: a broker that was killed may have kept a message whose answer was lost."""
        sent = self.sent()
        due = sorted({each.due_ms for each in sent} if repeated else (each.due_ms for each in sent))
        assert len({each.id for each in sent}) == len(set(due))
        steps = [after - before for before, after in pairwise(due)]
        assert steps == [self.every_ms] * len(steps), f"{self.sent()}\n{self.logs()}"

    def logs(self) -> str:
        return "\n".join(process.log_tail() for process in self.running.values())
