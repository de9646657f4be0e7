"""Members of a chord whose process dies at an exact point, once: before its part is counted, or later."""

from __future__ import annotations

import os
import signal
from typing import Any

from billiard.process import current_process
from celery import Task, shared_task
from celery.backends.redis import RedisBackend
from celery.signals import before_task_publish

from .effects import record

_ways: dict[str, tuple[str, str]] = {}
"""By group: where its last member dies, and what dies with it."""


@shared_task(name="member", bind=True)
def member(self: Task, value: int, at: str, what: str) -> int:
    """The last one dies `at` "counting" or "publishing": the `what`, "child" or "worker"."""
    record(f"start {self.request.id} {value}")
    _ways[str(self.request.group)] = (at, what)
    return value


@shared_task(name="body")
def body(values: list[int], name: str) -> None:
    """What must not be lost."""
    record(f"body {name} {sum(values)}")


class Mortal(RedisBackend):
    """The result backend, in which a process dies."""

    def on_chord_part_return(self, request: Any, *args: Any, **more: Any) -> Any:
        """Its success is stored, and its part is not yet counted."""
        if request.group_index == 1:
            _die_once("counting", request.group)
        return super().on_chord_part_return(request, *args, **more)


@before_task_publish.connect
def _publishes(sender: Any = None, headers: Any = None, **_: Any) -> None:
    """From Celery 5.7 on the claim is held now."""
    if sender == "body":
        for group in tuple(_ways):
            _die_once("publishing", group)


def _die_once(at: str, group: str) -> None:
    where, what = _ways.get(group, ("", ""))
    if where != at:
        return
    try:
        os.close(os.open(f"{os.environ['TEST_EFFECTS']}.{group}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    record(f"death {at} {what}")
    if what == "worker" and current_process().name != "MainProcess":
        os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
