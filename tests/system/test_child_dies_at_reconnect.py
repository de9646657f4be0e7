"""The connection breaks as a child dies, or reads its job: the worker stays up, and each task has its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.helpers.wait import wait_until

from .stage import Sent, Stage
from .test_poison import HARDENING, cut

EXTRA = ("-I", "tests.system.project.unwatched")


def started(stage: Stage, sent: Sent) -> list[list[str]]:
    """Of each start: the worker's process, the child's, and the pipe of its sentinel."""
    return [line.split()[2:] for line in stage.effects(f"start {sent.id} ")]


def ends_of(pipe: str, process: str) -> int:
    """How many descriptors of it a process has."""
    found = 0
    for each in Path(f"/proc/{process}/fd").iterdir():
        try:
            found += str(each.readlink()) == f"pipe:[{pipe}]"
        except FileNotFoundError:
            continue
    return found


def unwatched(stage: Stage, sent: Sent) -> bool:
    """Whether it runs in a child that the pool has ceased to watch, and has not found over."""
    return any(ends_of(pipe, worker) == 1 for worker, _, pipe in started(stage, sent))


def state_of_process(pid: str) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextmanager
def stopped(pid: str) -> Iterator[None]:
    """What happens meanwhile, happens at one instant for the process."""
    os.kill(int(pid), signal.SIGSTOP)
    try:
        wait_until(lambda: state_of_process(pid) == "T", 20)
        yield
    finally:
        os.kill(int(pid), signal.SIGCONT)


def test_a_worker_whose_child_dies_as_its_connection_breaks_stays_up(new_stage: Callable[..., Any]) -> None:
    with new_stage("redis") as stage:
        alive = stage.worker(concurrency=2, extra_args=EXTRA, TEST_HARDENING=HARDENING)
        dies, lives = stage.send("unwatched"), stage.send("unwatched")
        for sent in (dies, lives):
            wait_until(partial(unwatched, stage, sent), 30, stage.logs)
        ((worker, child, _),) = started(stage, dies)

        with stopped(worker):
            os.kill(int(child), signal.SIGKILL)
            wait_until(lambda: state_of_process(child) == "Z", 20)
            cut(stage, None)

        wait_until(lambda: len(started(stage, dies)) == 2, 40, stage.logs)
        stage.release()
        for sent in (dies, lives):
            stage.state_of(sent, "SUCCESS", 40)
        assert len(started(stage, lives)) == 1
        told = {"deaths": 1, "how": "SIGKILL"}
        assert stage.effects("task_died ") == [f"task_died {dies.id} {told}"]
        stage.nothing_unacked()

        # A job that is half written to a child as the connection breaks is written to its end.
        with stopped(started(stage, lives)[0][1]), stopped(started(stage, dies)[1][1]):
            large = stage.send("large", "x" * 3_000_000)
            wait_until(lambda: stage.said(f"large[{large.id}] received"), 30, stage.logs)
            cut(stage, None)
            wait_until(lambda: stage.said("Connection to broker lost") == 2, 30, stage.logs)

        stage.state_of(large, "SUCCESS", 40)
        stage.nothing_unacked()
        assert alive.process.is_running
        assert stage.letters() == []
