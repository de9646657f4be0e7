"""What is known of the end of a process that ran a task, and how it is told.

A body that raises MemoryError ends as a death: Celery would end the whole worker for it, with everything
else that runs there. In a child of prefork the process leaves after it has told its parent, since what the
task has taken of memory may stay with it, and no other task is in there. On other pools the process goes on.
"""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from celery.exceptions import Ignore, WorkerLostError

from hardening.core.letter import Attempt

from .case import Case, Death, How, Suspicion

__all__ = ["EX_RECYCLE", "ExitForMemory", "OutOfMemory", "attempts_of", "death_from", "described", "kind_of"]

EX_RECYCLE = 0x9B
"""With this code a child of billiard's leaves in good order: another is started, and nobody is alarmed."""

_LOST = re.compile(r"signal (\d+)(?: \((\w+)\))?|exit ?code (-?\d+)")
_MEGABYTE = 1024 * 1024


class OutOfMemory(Ignore):
    """The body raised MemoryError. An Ignore, so that Celery reports no outcome: the worker's parent counts
    it, and the message goes back or ends as a letter."""


class ExitForMemory(SystemExit):
    """The same in a pool's child, which then leaves."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)  # billiard leaves with the first of them.
        self.code = code

    @property
    def text(self) -> str:
        return str(self.args[1])


def death_from(exc: BaseException, request: Any, memory: Callable[[int], tuple[int, bool]]) -> Death | None:
    """The death that an error says a request ended with; None for any other end."""
    if not isinstance(exc, (WorkerLostError, SystemExit, KeyboardInterrupt, MemoryError, OutOfMemory)):
        return None
    pid = request.worker_pid if isinstance(request.worker_pid, int) else 0
    started, now = request.time_start, time.time()
    death = Death(
        id=uuid4().hex,
        at=now,
        pid=pid,
        host=socket.gethostname(),
        worker=str(request.hostname or ""),
        ran=max(0.0, now - started) if started else None,
    )
    if isinstance(exc, WorkerLostError):
        peak, killed = memory(pid)
        return replace(_lost(death, str(exc)), peak=peak, killed_for_memory=killed)
    if isinstance(exc, ExitForMemory):
        return replace(death, how=How.MEMORY, text=exc.text, peak=memory(pid)[0])
    if isinstance(exc, (MemoryError, OutOfMemory)):
        return replace(death, how=How.MEMORY, text=str(exc))
    if isinstance(exc, SystemExit):
        code = exc.code if isinstance(exc.code, int) else 0 if exc.code is None else 1
        return replace(death, how=How.EXITED, exitcode=code, text="SystemExit")
    return replace(death, how=How.EXITED, text=type(exc).__name__)


def _lost(death: Death, text: str) -> Death:
    """From billiard's text, and from Celery's: "signal 9 (SIGKILL)", "exitcode 3"."""
    found = _LOST.search(text)
    if found is None:
        return replace(death, how=How.EXITED, text=text)
    number, name, code = found.groups()
    if code is not None:
        return replace(death, how=How.EXITED, exitcode=int(code))
    return replace(death, how=How.KILLED, signal=name or _name_of(int(number)))


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def kind_of(death: Death) -> str:
    """In a word or two, as an error's class."""
    if death.how == How.KILLED:
        return death.signal or "signal"
    if death.how == How.MEMORY:
        return "MemoryError"
    if death.how == How.EXITED:
        return f"exit code {death.exitcode}" if death.exitcode is not None else death.text[:80] or "exit"
    return "worker gone"


def described(death: Death) -> str:
    """In a sentence, for people."""
    where = f"of worker {death.worker or '?'}" + (f" on {death.host}" if death.host else "")
    if death.how == How.GONE:
        parts = [f"the worker process {where} was gone before the task had ended"]
    elif death.how == How.MEMORY:
        parts = [
            f"process {death.pid or '?'} {where} had no memory left",
            *([death.text] if death.text else []),
        ]
    else:
        what = f"was killed by {death.signal}" if death.how == How.KILLED else f"ended with {kind_of(death)}"
        parts = [f"process {death.pid or '?'} {where} {what}"]
    if death.killed_for_memory:
        parts.append("the kernel had ended a process of its control group for memory")
    if death.peak:
        parts.append(f"its memory peaked at {death.peak / _MEGABYTE:.0f} MB or more")
    if death.ran is not None:
        seen = "seen" if death.how == How.GONE else "ended"
        parts.append(f"{seen} {death.ran:.1f} s after its start")
    return "; ".join(parts)


def attempts_of(case: Case, earlier: list[Attempt]) -> list[Attempt]:
    """Each death as an attempt, after the earlier ones. Numbered on: several deaths may be of one attempt."""
    rows = [_unseen(case.suspected)] if case.suspected is not None and case.deaths else []
    rows += [_attempt(death) for death in case.deaths]
    number = max((attempt.number for attempt in earlier), default=0)
    return [*earlier, *(replace(row, number=number + i) for i, row in enumerate(rows, 1))]


def _attempt(death: Death) -> Attempt:
    return Attempt(
        number=1,
        error_class=kind_of(death),
        message=described(death),
        worker=death.worker,
        started_at=_time(death.at - death.ran) if death.ran is not None else None,
        failed_at=_time(death.at),
    )


def _unseen(suspected: Suspicion) -> Attempt:
    holder = f" ({suspected.holder})" if suspected.holder else ""
    return Attempt(
        number=1,
        error_class="worker gone",
        message=f"a worker{holder} that had the message was gone; its start was the first, and not recorded",
        failed_at=_time(suspected.at),
    )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
