"""Two copies of one message among real workers: one runs, and the other only if the first came to nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from hardening.core.identity import KEY_HEADER, REPLAY_HEADER
from hardening.testing.ports import free_port
from tests.helpers.wait import wait_until

from .stage import CROSSED, STRAIGHT, Sent, Stage

HELD = "is held back, for it is run by"
NOT_RUN = "is not run again, it succeeded in"


def send_twice(stage: Stage) -> Sent:
    """A replay that was published twice: the task is in each worker's hands at once."""
    key, task_id = uuid4().hex, uuid4().hex
    headers = {KEY_HEADER: key, REPLAY_HEADER: 1}
    stage.send("held", task_id=task_id, headers=headers)
    return stage.send("held", task_id=task_id, headers=headers)


def starts(stage: Stage, sent: Sent) -> int:
    return len(stage.effects(f"started held {sent.id}"))


def duplicates(stage: Stage) -> list[dict[str, Any]]:
    status = json.loads(stage.manage("hardening_status", "--json").stdout)
    found: list[dict[str, Any]] = status["duplicates"]["tasks"]
    return found


@pytest.mark.parametrize(
    ("broker", "pool", "workers"), [*((*pair, 1) for pair in STRAIGHT), *((*pair, 2) for pair in CROSSED)]
)
def test_a_copy_waits_and_is_not_run_after_the_first_has_succeeded(
    new_stage: Callable[..., Any], broker: str, pool: str, workers: int
) -> None:
    with new_stage(broker) as stage:
        for _ in range(workers):
            stage.worker(pool=pool, concurrency=2 // workers)
        sent = send_twice(stage)
        wait_until(lambda: stage.said(HELD), 20, stage.logs)
        wait_until(lambda: starts(stage, sent) == 1, 20, stage.logs)

        stage.release()

        stage.state_of(sent, "SUCCESS")
        stage.nothing_unacked()
        assert starts(stage, sent) == 1
        assert stage.said(NOT_RUN) == 1
        wait_until(lambda: [each["not_run"] for each in duplicates(stage)] == [1], 20, stage.logs)
        assert "not run again 1" in stage.manage("hardening_status").stdout


@pytest.mark.parametrize(("broker", "pool"), STRAIGHT)
def test_a_copy_runs_after_the_worker_of_the_first_was_killed(
    new_stage: Callable[..., Any], broker: str, pool: str
) -> None:
    with new_stage(broker) as stage:
        workers = [stage.worker(pool=pool, concurrency=1) for _ in range(2)]
        sent = send_twice(stage)
        wait_until(lambda: stage.said(HELD) and starts(stage, sent), 20, stage.logs)
        # Both messages may have come to one of them.
        first, second = workers if HELD in workers[0].logs() else reversed(workers)
        (first if f"{HELD} this worker" in first.logs() else second).kill("SIGKILL")
        stage.release()

        stage.state_of(sent, "SUCCESS", 40)
        stage.nothing_unacked(40)
        assert starts(stage, sent) == 2


def test_without_a_store_every_copy_is_started_and_the_worker_says_so_once(
    new_stage: Callable[..., Any],
) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    store = {"BACKEND": "hardening.stores.redis.RedisStore", "OPTIONS": {"url": nowhere}}
    with new_stage("rabbitmq") as stage:
        for _ in range(2):
            stage.worker(concurrency=1, TEST_HARDENING=json.dumps({"STORE": store}))
        sent = send_twice(stage)
        wait_until(lambda: starts(stage, sent) == 2, 20, stage.logs)
        stage.release()
        stage.nothing_unacked()
        assert stage.said("all of them are started") == 2
