"""Run pytest-celery's worker API on real processes, without Docker.

Needs pytest-celery, and is the only module that imports it: its classes, not its pytest plug-in.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from celery import Celery
from pytest_celery import CeleryTestContainer, CeleryTestWorker, CeleryWorkerContainer
from pytest_celery.defaults import RESULT_TIMEOUT
from pytest_docker_tools.exceptions import ContainerFailed
from pytest_docker_tools.exceptions import TimeoutError as ContainerTimeout

from hardening.testing.errors import ProcessError
from hardening.testing.processes import POLL_SECONDS, ManagedProcess

READY_SECONDS = 60.0
PROCESS_COLUMNS = ("pid", "name", "username", "cmdline", "cpu_percent", "memory_percent", "create_time")


class ProcessContainer(CeleryTestContainer):  # type: ignore[misc]  # pytest-celery has no types
    """What pytest-celery sees as a container is one process group of this machine."""

    def __init__(self, process: ManagedProcess, *, env: Mapping[str, str], cwd: Path, id: str = "") -> None:
        """`env` is the whole environment, the process's own and that of `exec_run`."""
        # The inherited __init__ wants a container of the Docker client.
        self.process = process
        self.ready_seconds = READY_SECONDS
        self._id = id or uuid.uuid4().hex
        self._env = dict(env)
        self._cwd = cwd

    @property
    def id(self) -> str:
        return self._id

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def status(self) -> str:
        """`created`, `running` or `exited`."""
        return self.process.state

    @property
    def env(self) -> dict[str, str]:
        return dict(self._env)

    @property
    def attrs(self) -> dict[str, Any]:
        return {"Id": self.id, "Name": self.name, "State": {"Status": self.status, "Pid": self.process.pid}}

    def ready(self) -> bool:
        """True once the current run logged its ready prompt; raises when the process has ended."""
        if self.status == "created":
            return False
        if self.ready_prompt is not None:
            try:
                self.process.wait_for_log(self.ready_prompt, timeout=self.ready_seconds)
            except ProcessError as exc:
                raise ContainerFailed(self, str(exc)) from exc
        return self.status == "running"

    def logs(self) -> str:
        """The log of all runs, as `docker logs` shows it."""
        return self.process.log_text(since=0)

    def kill(self, signal: str | int | None = None) -> None:
        """As `docker kill`: SIGKILL ends the whole group, another signal goes to its first process."""
        self.process.kill("SIGKILL" if signal is None else signal)

    def restart(self, timeout: float = 10) -> None:
        """Stop (SIGKILL after `timeout` seconds), start, and wait until it is ready."""
        self.process.stop(timeout=timeout)
        self.process.start()
        self.ready()

    def reload(self) -> None:
        """Nothing to do: the state is read at each access."""

    def exec_run(self, cmd: str | Sequence[str], **kwargs: Any) -> tuple[int, bytes]:
        """Run a command in the worker's directory and environment; `python` is this interpreter."""
        parts = shlex.split(cmd) if isinstance(cmd, str) else list(cmd)
        if parts[0] in ("python", "python3"):
            parts[0] = sys.executable
        done = subprocess.run(
            parts, env=self._env, cwd=self._cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        return done.returncode, done.stdout

    def remove(self, *args: Any, **kwargs: Any) -> None:
        self.teardown()

    def teardown(self) -> None:
        """End the process group, gracefully at first. Safe to call twice."""
        self.process.stop()


class ProcessWorkerContainer(ProcessContainer, CeleryWorkerContainer):  # type: ignore[misc]
    """A `celery worker` of this machine, started by the constructor; for `pytest_celery.CeleryTestWorker`."""

    def __init__(
        self,
        app: str,
        *,
        log_dir: Path,
        worker_name: str = "worker",
        queues: Sequence[str] = ("celery",),
        pool: str = "prefork",
        concurrency: int = 1,
        log_level: str = "INFO",
        broker_url: str | None = None,
        result_backend: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        extra_args: Sequence[str] = (),
    ) -> None:
        """`app` as for `celery -A`; `env` is added to the current one; the URLs win over the app's own."""
        container_id = uuid.uuid4().hex
        whole_env = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        if broker_url is not None:
            whole_env["CELERY_BROKER_URL"] = broker_url
        if result_backend is not None:
            whole_env["CELERY_RESULT_BACKEND"] = result_backend
        self._worker_name = worker_name
        self._queues = ",".join(queues)
        self._log_level = log_level
        cwd = cwd or Path.cwd()
        process = ManagedProcess(
            # A fresh interpreter: whether gevent patches it is decided at its very start.
            [
                *(sys.executable, "-m", "celery", "-A", app, "worker"),
                *("--loglevel", log_level, "--hostname", f"{worker_name}@{container_id[:12]}"),
                *("--queues", self._queues, "--pool", pool, "--concurrency", str(concurrency)),
                *extra_args,
            ],
            log_path=log_dir / f"{worker_name}-{container_id[:12]}.log",
            env=whole_env,
            cwd=cwd,
            name=worker_name,
            stop_signal=signal.SIGTERM,
        )
        super().__init__(process, env=whole_env, cwd=cwd, id=container_id)
        process.start()

    # Instance methods where the base has class methods: each worker may have its own name and queues.
    def worker_name(self) -> str:
        return self._worker_name

    def worker_queue(self) -> str:
        return self._queues

    def log_level(self) -> str:
        return self._log_level

    @classmethod
    def version(cls) -> str:
        """The Celery version in use."""
        import celery

        return str(celery.__version__)


class ProcessWorker(CeleryTestWorker):  # type: ignore[misc]
    """pytest-celery's worker, whose process list is that of the worker and not of the whole machine."""

    container: ProcessWorkerContainer

    def __init__(self, container: ProcessWorkerContainer, app: Celery | None = None) -> None:
        super().__init__(container, app)

    @property
    def process(self) -> ManagedProcess:
        """The worker's process: `pause`, `wait_for_log`, `send_signal` and more."""
        return self.container.process

    def wait_for_log(self, log: str, message: str = "", timeout: float = RESULT_TIMEOUT) -> None:
        """Wait for a text in the log of all runs; the inherited one looks only once a second."""
        deadline = time.monotonic() + timeout
        while log not in self.logs():
            if time.monotonic() >= deadline:
                raise ContainerTimeout(message or f"{self.name()} did not log -> {log} within {timeout} s")
            time.sleep(POLL_SECONDS)

    def get_running_processes_info(
        self, columns: list[str] | None = None, filters: dict[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """The worker's main process and its descendants, the main process first."""
        if self.container.status != "running":
            return []
        main = psutil.Process(self.container.process.pid)
        infos: list[dict[str, Any]] = []
        for process in [main, *main.children(recursive=True)]:
            try:
                infos.append(process.as_dict(columns or list(PROCESS_COLUMNS)))
            except psutil.NoSuchProcess:
                continue
        return [
            info for info in infos if all(info.get(key) == value for key, value in (filters or {}).items())
        ]
