"""The workers, and their supervisor: what ends is started again, as systemd or Kubernetes would."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hardening.testing.processes import ManagedProcess

from .errors import ChaosError
from .facts import Hit
from .stage import Stage

__all__ = ["Fleet", "Worker", "children_of"]

EX_CONFIG = 78
DEPLOY_SECONDS = 60.0
_AGAIN_AFTER_SECONDS = 0.5
_START_SECONDS = 90.0


@dataclass
class Worker:
    """One place in the fleet; its process comes and goes."""

    name: str
    process: ManagedProcess
    begun_at: float
    planned_until: float = 0.0
    """While it is being stopped on purpose: when it is killed, if it did not obey. 0: it shall run."""

    resume_at: float = 0.0
    ended_at: float = 0.0
    starts: int = 1
    expected: bool = False
    """Its end is a fault of the plan, already noted."""

    codes: list[int] = field(default_factory=list)


class Fleet:
    """All workers. `tick` is called often; what it does and sees goes to `note`."""

    def __init__(self, stage: Stage, note: Callable[[Hit], None], is_ready: Callable[[int], bool]) -> None:
        self._stage = stage
        self._note = note
        self._is_ready = is_ready
        self.workers: list[Worker] = []

    def start(self) -> None:
        """Start all; returns at once."""
        for number in range(self._stage.options.workers):
            name = f"chaos{number + 1}"
            process = ManagedProcess(
                self._command(name),
                log_path=self._stage.directory / f"{name}.log",
                env=self._stage.whole_env,
                cwd=Path.cwd(),
                name=name,
            )
            self.workers.append(Worker(name=name, process=process.start(), begun_at=time.time()))

    def up(self) -> list[Worker]:
        """Those that take messages now, and are not stopped in any way."""
        return [
            worker
            for worker in self.workers
            if not worker.planned_until
            and not worker.resume_at
            and worker.process.is_running
            and self._is_ready(worker.process.pid)
        ]

    def tick(self) -> None:
        """Resume, kill what does not obey, and start what has ended."""
        now = time.time()
        for worker in self.workers:
            if worker.resume_at and now >= worker.resume_at:
                worker.process.resume()
                worker.resume_at = 0.0
            if worker.process.is_running:
                self._look_at_running(worker, now)
            elif not worker.ended_at:
                self._look_at_ended(worker, now)
            elif now - worker.ended_at >= _AGAIN_AFTER_SECONDS:
                worker.process.start()
                worker.begun_at, worker.ended_at, worker.planned_until = now, 0.0, 0.0
                worker.starts += 1
                worker.expected = False

    def kill(self, worker: Worker) -> frozenset[int]:
        """SIGKILL to all of it at once; returns whom it hit."""
        pids = frozenset({worker.process.pid, *children_of(worker.process.pid)})
        worker.expected = True
        worker.resume_at = 0.0
        worker.process.kill()
        return pids

    def stop(self) -> None:
        """The end: SIGTERM to all, SIGKILL to who stays."""
        for worker in self.workers:
            worker.process.resume()
            worker.process.send_signal(signal.SIGTERM)
        for worker in self.workers:
            worker.process.stop(timeout=20)

    def _look_at_running(self, worker: Worker, now: float) -> None:
        if worker.planned_until and now >= worker.planned_until:
            self._note(
                Hit(name="deploy, not obeyed", at=now, pids=self.kill(worker), note=f"{worker.name}, SIGKILL")
            )
            worker.planned_until = 0.0
        if now - worker.begun_at > _START_SECONDS and not self._is_ready(worker.process.pid):
            if worker.resume_at or worker.planned_until:
                return
            # It would never be hit, since it never gets ready.
            worker.begun_at = now
            self._note(Hit(name="slow start", at=now, pids=frozenset(), note=worker.name))

    def _look_at_ended(self, worker: Worker, now: float) -> None:
        code = worker.process.returncode or 0
        worker.codes.append(code)
        worker.ended_at = now
        if code == EX_CONFIG:
            raise ChaosError(f"a worker refuses to start\n{worker.process.log_tail()}")
        if not worker.planned_until and not worker.expected:
            pids = frozenset({worker.process.pid})
            self._note(Hit(name=f"worker ended ({code})", at=now, pids=pids, note=worker.name))

    def _command(self, name: str) -> Sequence[str]:
        options = self._stage.options
        return [
            *(sys.executable, "-m", "celery", "-A", self._stage.app_name, "worker", "--loglevel", "INFO"),
            *("--pool", options.pool, "--concurrency", str(options.concurrency), "-n", f"{name}@%h"),
            *("--without-mingle", "--without-gossip"),
            *("-I", "hardening.chaos.witness,hardening.chaos.tasks"),
            *options.worker_args,
        ]


def children_of(pid: int) -> list[int]:
    """The processes that one has started and that are there now."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found
