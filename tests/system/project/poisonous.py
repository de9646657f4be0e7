"""Tasks that end their process, each in its way, and say before that they start."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from billiard.process import current_process
from celery import Task, shared_task
from celery.signals import worker_process_init

from hardening.core.events import orphan_recovered, task_died, task_quarantined

from .effects import record, released

_ROOM = 96 * 1024 * 1024


def _killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _segfault() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


def _system_exit() -> None:
    sys.exit(3)


def _memory_error() -> None:
    raise MemoryError("as if")


def _out_of_memory() -> None:
    """Against a limit of the process's own."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + _ROOM, hard))
    try:
        bytearray(8 * _ROOM)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _import() -> None:
    """Of a module that ends its process while it is read."""
    from . import ending  # noqa: F401


def _whole_worker() -> None:
    if current_process().name != "MainProcess":
        os.kill(os.getppid(), signal.SIGKILL)
    _killed()


WAYS: dict[str, Callable[[], Any]] = {
    "killed": _killed,
    "segfault": _segfault,
    "exit": _system_exit,
    "memory": _memory_error,
    "rlimit": _out_of_memory,
    "import": _import,
    "worker": _whole_worker,
}


@shared_task(name="die", bind=True)
def die(self: Task, how: str, times: int = 1000) -> str:
    """End the process, the first so many times."""
    record(f"start {self.request.id} of {self.request.hostname}")
    if len(_starts(str(self.request.id))) <= times:
        WAYS[how]()
    record(f"end {self.request.id}")
    return "alive"


@shared_task(name="die_at_once", bind=True, poison_limit=1)  # type: ignore[call-overload,untyped-decorator]
def die_at_once(self: Task) -> None:
    """Allowed one start."""
    record(f"start {self.request.id} of {self.request.hostname}")
    _killed()


@shared_task(name="moved", bind=True, poison_queue="roomy")  # type: ignore[call-overload,untyped-decorator]
def moved(self: Task, how: str) -> str:
    """Dies everywhere but where there is room."""
    record(f"start {self.request.id} of {self.request.hostname}")
    if not str(self.request.hostname).startswith("roomy"):
        WAYS[how]()
    return "there was room"


@shared_task(name="hangs", bind=True, time_limit=1)
def hangs(self: Task) -> None:
    """Until its hard limit ends it."""
    record(f"start {self.request.id} of {self.request.hostname}")
    while True:
        time.sleep(0.1)


@shared_task(name="harmless", bind=True)
def harmless(self: Task) -> str:
    """A neighbour."""
    record(f"start {self.request.id} of {self.request.hostname}")
    time.sleep(0.01)
    return "done"


@shared_task(name="waits", bind=True, poison_limit=1)  # type: ignore[call-overload,untyped-decorator]
def waits(self: Task) -> str:
    """Until the test says so. Allowed to die once."""
    record(f"start {self.request.id} of {self.request.hostname}")
    while not released():
        time.sleep(0.02)
    return "done"


@worker_process_init.connect
def _leave_room(**_: Any) -> None:
    """A child may grow by so many megabytes, where a test says how many."""
    room = int(os.environ.get("TEST_CHILD_ROOM", 0)) * 1024 * 1024
    if room:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.getrlimit(resource.RLIMIT_AS)[1]))


@shared_task(name="large", bind=True)
def large(self: Task, payload: str) -> int:
    """Its message does not fit into a child."""
    record(f"start {self.request.id} of {self.request.hostname}")
    return len(payload)


def _starts(task_id: str) -> list[str]:
    lines = Path(os.environ["TEST_EFFECTS"]).read_text().splitlines()
    return [line for line in lines if line.startswith(f"start {task_id} ")]


def _note(event: str) -> Callable[..., None]:
    def receive(**facts: Any) -> None:
        told = {name: facts[name] for name in ("deaths", "how", "holder") if facts.get(name)}
        record(f"{event} {facts['task_id']} {told}")

    return receive


orphan_recovered.connect(_note("orphan_recovered"), weak=False, dispatch_uid="orphan")
task_died.connect(_note("task_died"), weak=False, dispatch_uid="died")
task_quarantined.connect(_note("task_quarantined"), weak=False, dispatch_uid="quarantined")
