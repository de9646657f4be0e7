"""A stage: one broker, one database, the project's workers on it, and a look at what they leave."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from celery import Celery
from django.db import connections

from dlq.models import DeadLetter
from hardening.testing.containers import ProcessWorker, ProcessWorkerContainer
from tests.helpers.databases import database_from_url
from tests.helpers.wait import wait_until

PROJECT = "tests.system.project"
ROOT = Path(__file__).parents[2]
ALIAS = "stage"
STRAIGHT = [("redis", "prefork"), ("rabbitmq", "gevent")]
CROSSED = [("redis", "gevent"), ("rabbitmq", "prefork")]
"""Each has every broker and every pool once; of the tests of one matter some take these, the others those."""
COMBINATIONS = [*STRAIGHT, *CROSSED]


@dataclass(frozen=True)
class Sent:
    """A task that was sent, at the time `at`."""

    id: str
    app: Celery
    at: float = field(default_factory=time.time)

    @property
    def state(self) -> str:
        return str(self.app.backend.get_task_meta(self.id, cache=False)["status"])


@dataclass
class Stage:
    """What a test of real workers needs. `unacked` asks the broker how many messages are held by workers."""

    broker_url: str
    result_url: str
    database_url: str
    directory: Path
    unacked: Callable[[], int]
    sender: Celery = field(init=False)
    workers: list[ProcessWorkerContainer] = field(default_factory=list)
    pool: str = ""

    def __post_init__(self) -> None:
        self.sender = Celery("sender", broker=self.broker_url, backend=self.result_url, set_as_current=False)
        self.sender.conf.broker_connection_retry_on_startup = True
        # Celery would subscribe to each result, on a connection that outlives the stage; we poll.
        backend: Any = self.sender.backend
        backend.on_task_call = lambda producer, task_id: {}
        backend.remove_pending_result = lambda result: result
        self.effects_path.touch()

    @property
    def effects_path(self) -> Path:
        return self.directory / "effects"

    def env(self, **more: str) -> dict[str, str]:
        return {
            "DJANGO_SETTINGS_MODULE": f"{PROJECT}.settings",
            "CELERY_BROKER_URL": self.broker_url,
            "CELERY_RESULT_BACKEND": self.result_url,
            "TEST_DATABASE_URL": self.database_url,
            "TEST_EFFECTS": str(self.effects_path),
            "PYTHONPATH": str(ROOT),
            **more,
        }

    def worker(
        self,
        *,
        pool: str = "prefork",
        concurrency: int = 2,
        wait: bool = True,
        social: bool = False,
        extra_args: tuple[str, ...] = (),
        **env: Any,
    ) -> ProcessWorker:
        """Start a worker; a `social` one talks to the others when it starts, as workers do by default."""
        container = ProcessWorkerContainer(
            PROJECT,
            log_dir=self.directory,
            pool=pool,
            concurrency=concurrency,
            env=self.env(**env),
            cwd=ROOT,
            extra_args=(*(() if social else ("--without-mingle", "--without-gossip")), *extra_args),
        )
        self.workers.append(container)
        if wait:
            container.ready()
        return ProcessWorker(container)

    def manage(self, *arguments: str, check: bool = True, **env: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "django", *arguments],
            env={**os.environ, **self.env(**env)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=check,
            timeout=60,
        )

    def send(self, name: str, *args: Any, **options: Any) -> Sent:
        return self.sent(
            self.sender.send_task(name, args=args, kwargs=options.pop("kwargs", None), **options)
        )

    def sent(self, result: Any) -> Sent:
        """Follow a result by its id only: an AsyncResult has a life of its own on the backend."""
        return Sent(str(result.id), self.sender)

    def effects(self, beginning: str = "") -> list[str]:
        return [line for line in self.effects_path.read_text().splitlines() if line.startswith(beginning)]

    def release(self) -> None:
        Path(f"{self.effects_path}.release").touch()

    def withhold(self) -> None:
        """Take the release back."""
        Path(f"{self.effects_path}.release").unlink()

    def bring_up(self, dependency: str) -> None:
        """From now on the dependency of some tasks works."""
        Path(f"{self.effects_path}.{dependency}").touch()

    def letters(self, **filters: Any) -> list[DeadLetter]:
        connections[ALIAS].close()  # The server may have been stopped since the last look.
        return list(DeadLetter.objects.using(ALIAS).filter(**filters).order_by("failed_at"))

    def letter_of(self, result: Sent, timeout: float = 30) -> DeadLetter:
        """The one letter of a task that was sent, waited for."""
        found = wait_until(lambda: self.letters(task_id=result.id), timeout, self.logs)
        assert len(found) == 1
        return found[0]

    def attempts(self, letter: DeadLetter) -> list[Any]:
        return list(letter.attempts.order_by("number"))

    def state_of(self, result: Sent, state: str, timeout: float = 30) -> Sent:
        wait_until(lambda: result.state == state, timeout, lambda: f"{result.state}; {self.logs()}")
        return result

    def nothing_unacked(self, timeout: float = 20) -> None:
        wait_until(
            lambda: self.unacked() == 0, timeout, lambda: f"{self.unacked()} messages are unacknowledged"
        )

    def logs(self) -> str:
        return "\n".join(worker.logs()[-6000:] for worker in self.workers)

    def said(self, text: str) -> int:
        """How often the workers logged it."""
        return sum(worker.logs().count(text) for worker in self.workers)

    def close(self) -> None:
        self.release()
        for worker in self.workers:
            worker.teardown()
        self.sender.close()
        connections[ALIAS].close()


def migrate_sqlite(template: Path) -> None:
    """Make the SQLite file that each stage copies."""
    subprocess.run(
        [sys.executable, "-m", "django", "migrate", "--verbosity", "0"],
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": f"{PROJECT}.settings",
            "TEST_DATABASE_URL": f"sqlite:///{template}",
            "CELERY_BROKER_URL": "memory://",
            "PYTHONPATH": str(ROOT),
        },
        cwd=ROOT,
        check=True,
    )


def database_entry(url: str) -> dict[str, Any]:
    entry = database_from_url(url)
    if entry["ENGINE"].endswith("sqlite3"):
        entry["OPTIONS"] = {"timeout": 20}
    return entry


def copy_database(template: Path, directory: Path) -> str:
    target = directory / "database.sqlite3"
    shutil.copy(template, target)
    return f"sqlite:///{target}"


def as_json(value: Any) -> str:
    return json.dumps(value)
