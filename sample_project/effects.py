"""A witness of its own: what each task did, in plain files, independent of the broker and the database.

The demo's ledger is counted from here. It is kept only where SHOP_EFFECTS names a directory for it; a real
project would not need it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from celery import Task

from hardening.core.identity import BEAT_HEADER, identity_of

DIRECTORY_VARIABLE = "SHOP_EFFECTS"
STARTED = "started"
SUCCEEDED = "succeeded"
RAISED = "raised "


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One line: the delivery `key` of a job, and what a run of its task came to.

    `outcome` is "started", "succeeded", or "raised " and the name of the error. `attempt` counts the retries
    of one life of the message, `replay` its lives. `scheduled` says which due time of which schedule it was
    sent for: milliseconds since 1970, a blank, the name. Empty: a person or a program asked for it.
    """

    key: str
    kind: str
    outcome: str
    attempt: int = 0
    replay: int = 0
    pid: int = 0
    scheduled: str = ""


@contextmanager
def effect(task: Task[Any, Any]) -> Iterator[None]:
    """Write down that the task started, and how the block ended. A killed process leaves only the start."""
    where = os.environ.get(DIRECTORY_VARIABLE)
    if not where:
        yield
        return
    request = task.request
    headers = request.headers or {}
    identity = identity_of(headers, str(request.id))

    def write(outcome: str) -> None:
        line = Effect(
            key=identity.delivery_key,
            kind=str(task.name),
            outcome=outcome,
            attempt=request.retries or 0,
            replay=identity.replay_number,
            pid=os.getpid(),
            scheduled=headers.get(BEAT_HEADER, ""),
        )
        append(Path(where), line)

    write(STARTED)
    try:
        yield
    except BaseException as exc:  # A witness: whatever ends the block is written down and goes on.
        write(RAISED + type(exc).__name__)
        raise
    write(SUCCEEDED)


def append(where: Path, line: Effect) -> None:
    """Add one line to this process's own file, in a single write that a kill cannot tear."""
    os.write(_file(where, os.getpid()), json.dumps(asdict(line)).encode() + b"\n")


@cache
def _file(where: Path, pid: int) -> int:
    # By process id: a forked worker process opens a file of its own.
    where.mkdir(parents=True, exist_ok=True)
    return os.open(where / f"{pid}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


class EffectReader:
    """Follows all the files; each `new` returns the lines that came since the one before."""

    def __init__(self, where: Path) -> None:
        self._where = where
        self._offsets: dict[Path, int] = {}

    def new(self) -> list[Effect]:
        """The complete lines that were not returned yet."""
        found: list[Effect] = []
        for path in sorted(self._where.glob("*.log")):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                whole, newline, _torn = file.read().rpartition(b"\n")
            self._offsets[path] = self._offsets.get(path, 0) + len(whole) + len(newline)
            found += [Effect(**json.loads(line)) for line in whole.splitlines()]
        return found
