"""One retry storm: tasks are published while what they call is down; who called it when, once it is back."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from celery import Celery

from hardening.testing.containers import ProcessWorkerContainer
from tests.helpers.wait import wait_until

from .downstream import Call, Downstream

__all__ = ["Outcome", "Storm"]

PROJECT = "tests.chaos.project"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the downstream saw, in seconds since it went down, and what the project told."""

    variant: str
    calls: tuple[Call, ...]
    down_for: float
    opened: float | None
    """When an outage was noticed; None: never, as on plain Celery."""

    failed: int
    """Tasks that Celery gave up."""

    letters: int | None
    """Dead letters; None: plain Celery has none."""

    left: int
    """Tasks that were not done when the patience was over."""

    @property
    def recovered(self) -> float:
        """When the first call succeeded: from here on the workers may know."""
        return next((call.at for call in self.calls if call.status == 200), float("inf"))

    @property
    def while_down(self) -> int:
        """Calls in vain."""
        return sum(call.status != 200 for call in self.calls)

    @property
    def before_opened(self) -> int | None:
        """Calls until the outage was noticed."""
        return None if self.opened is None else sum(call.at <= self.opened for call in self.calls)

    @property
    def while_probing(self) -> int | None:
        """Calls from the outage's opening on, up to and with the one that succeeded."""
        if self.opened is None:
            return None
        return sum(self.opened < call.at <= self.recovered for call in self.calls)

    @property
    def served(self) -> Counter[str]:
        """How often each task succeeded."""
        return Counter(call.task_id for call in self.calls if call.status == 200)

    @property
    def last_success(self) -> float:
        return max((call.at for call in self.calls if call.status == 200), default=float("nan"))

    def arrivals(self, mean: int) -> list[int]:
        """The arrival histogram once recovered, in equal bins of `mean` arrivals on average, or a few more.

        An arrival is a call that reached the downstream, however it was answered, from the first call that
        succeeded to the last call of all. The bins divide that time evenly. They are as many as leave `mean`
        arrivals to each: chance alone spreads a bin's count by its square root, so that of few arrivals a
        bin with twice the mean says nothing, and of forty it is more than six such spreads away.
        """
        times = [call.at for call in self.calls if call.at >= self.recovered]
        bins = [0] * max(1, len(times) // mean)
        if not times:
            return bins
        first, length = times[0], max(times[-1] - times[0], 1e-9)
        for at in times:
            bins[min(len(bins) - 1, int((at - first) / length * len(bins)))] += 1
        return bins

    def peak_over_mean(self, mean: int) -> float:
        bins = self.arrivals(mean)
        return max(bins) * len(bins) / max(1, sum(bins))


@dataclass(kw_only=True)
class Storm:
    """Servers and size of one run. `directory` takes its logs, its database and the list of all calls."""

    variant: str
    broker_url: str
    result_url: str
    directory: Path
    seed: int
    database_url: str = ""
    tasks: int = 1000
    publish_seconds: float = 25.0
    down_seconds: float = 60.0
    patience_seconds: float = 240.0
    workers: int = 2
    pool: str = "prefork"
    concurrency: int = 2
    containers: list[ProcessWorkerContainer] = field(default_factory=list)

    def run(self) -> Outcome:
        """Publish, wait until all is done or the patience over, and stop the workers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.database_url = self.database_url or f"sqlite:///{self.directory / 'database.sqlite3'}"
        with ExitStack() as stack:
            downstream = stack.enter_context(Downstream(self.directory / "calls.tsv"))
            env = self._env(downstream.url)
            self._manage(env, "migrate", "--verbosity", "0")
            for number in range(self.workers):
                self._start_worker(stack, env, number)
            for container in self.containers:
                container.ready()
            began = downstream.go_down(self.down_seconds)
            self._publish(began)
            deadline = began + self.patience_seconds
            while downstream.done < self.tasks and time.time() < deadline:
                self._still_running()
                time.sleep(0.2)
            wait_until(lambda: self._inspected("active") == 0, 30, "a task runs that should have ended")
            letters = self._letters(env) if self.variant == "hardened" else None
            return self._outcome(downstream, began, letters)

    def logs(self) -> str:
        """The ends of the workers' logs."""
        return "\n".join(container.logs()[-4000:] for container in self.containers)

    @property
    def _events(self) -> Path:
        return self.directory / "events.tsv"

    def _env(self, downstream_url: str) -> dict[str, str]:
        return {
            "DJANGO_SETTINGS_MODULE": f"{PROJECT}.settings",
            "PYTHONPATH": str(ROOT),
            "CELERY_BROKER_URL": self.broker_url,
            "CELERY_RESULT_BACKEND": self.result_url,
            "TEST_DATABASE_URL": self.database_url,
            "CHAOS_VARIANT": self.variant,
            "CHAOS_DOWNSTREAM": downstream_url,
            "CHAOS_EVENTS": str(self._events),
            "CHAOS_SEED": str(self.seed),
        }

    def _start_worker(self, stack: ExitStack, env: dict[str, str], number: int) -> None:
        container = ProcessWorkerContainer(
            PROJECT,
            log_dir=self.directory,
            worker_name=f"worker-{number}",
            pool=self.pool,
            concurrency=self.concurrency,
            env={**env, "CHAOS_WORKER": str(number)},
            cwd=ROOT,
            extra_args=("--without-mingle", "--without-gossip"),
        )
        stack.callback(container.teardown)
        self.containers.append(container)

    def _publish(self, began: float) -> None:
        """Send the tasks at times that the seed chose, evenly over the first seconds."""
        dice = random.Random(self.seed)
        due = sorted(dice.uniform(0, self.publish_seconds) for _ in range(self.tasks))
        app = self._sender()
        with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
            for number, (earlier, later) in enumerate(pairwise([0.0, *due])):
                time.sleep(max(0.0, began + later - time.time()) if later > earlier else 0.0)
                app.send_task("deliver", task_id=f"task-{number:04}", producer=producer)
        app.close()

    def _sender(self) -> Celery:
        return Celery("publisher", broker=self.broker_url, set_as_current=False)

    def _still_running(self) -> None:
        for container in self.containers:
            assert container.status == "running", container.process.log_tail()

    def _inspected(self, what: str) -> int:
        app = self._sender()
        answers: dict[str, list[Any]] = getattr(app.control.inspect(timeout=2), what)() or {}
        app.close()
        return sum(map(len, answers.values()))

    def _letters(self, env: dict[str, str]) -> int:
        listed = self._manage(env, "dlq_list", "--json", "--limit", str(10 * self.tasks))
        return len(json.loads(listed))

    def _manage(self, env: dict[str, str], *arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "django", *arguments],
            env={**os.environ, **env},
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout

    def _outcome(self, downstream: Downstream, began: float, letters: int | None) -> Outcome:
        lines = self._events.read_text().splitlines() if self._events.exists() else []
        events = [line.split("\t") for line in lines]
        opened = [float(at) - began for at, event, _ in events if event == "opened"]
        return Outcome(
            variant=self.variant,
            calls=tuple(Call(call.at - began, call.task_id, call.status) for call in downstream.calls()),
            down_for=self.down_seconds,
            opened=min(opened, default=None),
            failed=sum(event == "task_failed" for _, event, _ in events),
            letters=letters,
            left=self.tasks - downstream.done,
        )
