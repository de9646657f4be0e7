"""The kit's own tasks: each says when its body starts and ends, and fails, waits or kills as it is told."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Any

from billiard.process import current_process
from celery import shared_task

from hardening.core.errors import Permanent

from .witness import key_of, write

__all__ = ["failing", "link", "poison", "quick", "retrying", "slow", "total"]

_POISON_EXIT = 3


class NotYet(Exception):
    """It will pass."""


def _start(task: Any) -> None:
    request: Any = task.request
    write("start", key_of(request), attempt=request.retries, worker=request.hostname, task=task.name)


def _end(task: Any) -> None:
    request: Any = task.request
    write("end", key_of(request), attempt=request.retries, worker=request.hostname, task=task.name)


@shared_task(name="hardening.chaos.quick", bind=True)
def quick(self: Any, *_: Any) -> int:
    """Do nothing for no time."""
    _start(self)
    _end(self)
    return 1


@shared_task(name="hardening.chaos.slow", bind=True)
def slow(self: Any, seconds: float) -> int:
    """Take a while, so that faults find somebody at work."""
    _start(self)
    time.sleep(seconds)
    _end(self)
    return 1


@shared_task(name="hardening.chaos.link", bind=True)
def link(self: Any, *_: Any, seconds: float = 0.02) -> int:
    """One step of a chain, or one member of a chord."""
    _start(self)
    time.sleep(seconds)
    _end(self)
    return 1


@shared_task(name="hardening.chaos.total", bind=True)
def total(self: Any, values: list[int]) -> int:
    """The body of a chord."""
    _start(self)
    _end(self)
    return sum(values)


@shared_task(name="hardening.chaos.failing", bind=True)
def failing(self: Any) -> None:
    """Fail for good."""
    _start(self)
    raise Permanent("never")


@shared_task(
    name="hardening.chaos.retrying",
    bind=True,
    autoretry_for=(NotYet,),
    max_retries=8,
    default_retry_delay=1,
)
def retrying(self: Any, times: int) -> int:
    """Fail so often, then succeed."""
    _start(self)
    if self.request.retries < times:
        raise NotYet(f"attempt {self.request.retries + 1}")
    _end(self)
    return 1


@shared_task(name="hardening.chaos.poison", bind=True)
def poison(self: Any, whole_worker: bool, how: str) -> None:
    """Kill the process that runs it, at each start; or the whole worker."""
    _start(self)
    if whole_worker and current_process().name != "MainProcess":
        os.kill(os.getppid(), signal.SIGKILL)
    match how:
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(_POISON_EXIT)
        case _:
            os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # The signal is on its way.
