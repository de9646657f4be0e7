"""A stand: what a worker of bench.project needs, and the worker itself, hardened or plain."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import psutil
from celery import Celery

from hardening.testing.errors import ProcessError
from hardening.testing.processes import ManagedProcess

__all__ = ["ROOT", "Setup", "Stand", "cpu_seconds", "wait_for"]

ROOT = Path(__file__).parents[1]
_POLL_SECONDS = 0.05
_BEFORE_THE_FIRST_LOOK_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One kind of worker. `variant` is "hardened", "plain" or "defaults"; see bench/project/settings.py."""

    variant: str
    pool: str
    concurrency: int
    prefetch: int = 1
    max_connections: int | None = None
    hardening: Mapping[str, Any] = field(default_factory=dict)
    celery: Mapping[str, Any] = field(default_factory=dict)
    """Settings such as CELERY_TASK_TIME_LIMIT, above all others."""


@dataclass
class Stand:
    """Servers, and a directory that is the stand's own."""

    broker_url: str
    result_url: str
    directory: Path
    _numbers: Any = field(default_factory=lambda: count(1))

    def worker(self, setup: Setup, *, loglevel: str = "WARNING") -> ManagedProcess:
        """Start one, with a database of its own. To be killed: there is nothing to end in good order."""
        number = next(self._numbers)
        database = self.directory / f"worker-{number}.sqlite3"
        shutil.copy(self._migrated(setup), database)
        command = [
            *(sys.executable, "-m", "celery", "-A", "bench.project", "worker", "--loglevel", loglevel),
            *("--pool", setup.pool, "--concurrency", str(setup.concurrency)),
            *("--without-mingle", "--without-gossip", "-n", f"bench-{number}@%h"),
        ]
        process = ManagedProcess(
            command,
            log_path=self.directory / f"worker-{number}.log",
            env=self._env(setup, database),
            cwd=ROOT,
            name=f"worker {number}",
        )
        return process.start()

    def ready_worker(self, setup: Setup) -> ManagedProcess:
        """Start one, and wait until it takes messages."""
        process = self.worker(setup, loglevel="INFO")
        try:
            process.wait_for_log(" ready.", timeout=_BEFORE_THE_FIRST_LOOK_SECONDS)
        except BaseException:
            process.kill()
            raise
        return process

    def beat(self, setup: Setup, **env: str) -> ManagedProcess:
        """Start a Beat. To be killed."""
        number = next(self._numbers)
        database = self.directory / f"beat-{number}.sqlite3"
        if "BENCH_SERVER" not in env:
            shutil.copy(self._migrated(setup), database)
        environ = {**self._env(setup, database), **env}
        if "BENCH_SERVER" in env:
            command = [sys.executable, "-m", "django", "migrate", "--verbosity", "0", "--skip-checks"]
            subprocess.run(command, env=environ, cwd=ROOT, check=True)
        process = ManagedProcess(
            [sys.executable, "-m", "celery", "-A", "bench.project", "beat", "--loglevel", "WARNING"],
            log_path=self.directory / f"beat-{number}.log",
            env=environ,
            cwd=ROOT,
            name=f"beat {number}",
        )
        return process.start()

    def publisher(self) -> Celery:
        """An app that knows the broker and none of our settings."""
        return Celery("publisher", broker=self.broker_url, set_as_current=False)

    def _env(self, setup: Setup, database: Path) -> dict[str, str]:
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "bench.project.settings",
            "BENCH_VARIANT": setup.variant,
            "BENCH_BROKER": self.broker_url,
            "BENCH_RESULTS": self.result_url,
            "BENCH_DATABASE": str(database),
            "BENCH_PREFETCH": str(setup.prefetch),
            "BENCH_HARDENING": json.dumps(dict(setup.hardening)),
            "BENCH_CELERY": json.dumps(dict(setup.celery)),
        }
        if setup.max_connections is not None:
            env["BENCH_MAX_CONNECTIONS"] = str(setup.max_connections)
        return env

    def _migrated(self, setup: Setup) -> Path:
        template = self.directory / f"{setup.variant}.sqlite3"
        with _migrating:
            if not template.exists():
                subprocess.run(
                    [sys.executable, "-m", "django", "migrate", "--verbosity", "0", "--skip-checks"],
                    env=self._env(setup, template),
                    cwd=ROOT,
                    check=True,
                )
        return template


_migrating = Lock()


def cpu_seconds(worker: ManagedProcess) -> float:
    """Processor time of a worker and its children."""
    parent = psutil.Process(worker.pid)
    times = [process.cpu_times() for process in (parent, *parent.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def wait_for(happened: Callable[[], object], worker: ManagedProcess, seconds: float) -> bool:
    """Whether it happened in time. Raises ProcessError when the worker ends by itself."""
    deadline = time.monotonic() + seconds
    while not happened():
        if not worker.is_running:
            last = worker.log_text().strip().rpartition("\n")[2]
            raise ProcessError(f"the worker ended by itself: {last}\n{worker.log_tail()}")
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
