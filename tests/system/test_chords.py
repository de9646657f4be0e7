"""The body of a chord is published, at whatever point the process of its last member dies."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis
from celery import chord

from hardening.private import celery_version
from tests.helpers.wait import wait_until

from .stage import Stage

LEASE = json.dumps({"LEASE": {"SECONDS": "3 s", "RENEW_EVERY": "1 s"}, "POISON": {"BASE": "0.1 s"}})
EXTRA = ("-I", "tests.system.project.chording")
HAS_CLAIM = celery_version() >= (5, 7)


def start(stage: Stage, pool: str) -> Any:
    return stage.worker(
        pool=pool,
        concurrency=1,
        extra_args=EXTRA,
        TEST_HARDENING=LEASE,
        CELERY_RESULT_BACKEND=f"tests.system.project.chording.Mortal+{stage.result_url}",
    )


def send(stage: Stage, name: str, at: str, what: str) -> list[str]:
    """Send a chord of two; returns the ids of its members."""
    header = [stage.sender.signature("member", args=(value, at, what)) for value in (1, 2)]
    result = chord(header, app=stage.sender)(stage.sender.signature("body", args=(name,)))
    parent: Any = result.parent
    return [each.id for each in parent.results]


def ended(stage: Stage, name: str) -> None:
    """Its body ran, with the results of both."""
    wait_until(partial(stage.effects, f"body {name} "), 60, stage.logs)
    assert stage.effects(f"body {name} ") == [f"body {name} 3"]


def claim_runs_out(stage: Stage, name: str) -> None:
    """The claim of the dead, which lasts as long as all tries to publish, ends now."""
    if HAS_CLAIM:
        assert stage.effects(f"body {name} ") == []
        with redis.Redis.from_url(stage.result_url) as client:
            (claim,) = (key for key in client.scan_iter("*.c") if client.get(key) != b"done")
            assert client.pexpire(claim, 1)


def starts(stage: Stage, task_id: str) -> int:
    return len(stage.effects(f"start {task_id} "))


@pytest.mark.parametrize(("broker", "pool"), [("redis", "prefork"), ("rabbitmq", "gevent")])
def test_the_body_of_a_chord_outlives_the_process_of_its_last_member(
    new_stage: Callable[..., Any], broker: str, pool: str
) -> None:
    with new_stage(broker) as stage:
        worker = start(stage, pool)
        if pool == "prefork":
            uncounted = send(stage, "uncounted", "counting", "child")
            ended(stage, "uncounted")
            claimed = send(stage, "claimed", "publishing", "child")
            if HAS_CLAIM:
                wait_until(lambda: stage.said("succeeded before the worker was lost") == 2, 60, stage.logs)
                claim_runs_out(stage, "claimed")
            ended(stage, "claimed")
            again = 1 if HAS_CLAIM else 2  # Celery 5.6 does not ask whether it had succeeded.
            assert [starts(stage, each) for each in (*uncounted, *claimed)] == [1, again, 1, again]

        members = send(stage, "alone", "publishing", "worker")
        wait_until(lambda: not worker.process.is_running, 60, stage.logs)
        assert stage.effects("body alone ") == []
        worker.process.restart()
        wait_until(lambda: starts(stage, members[1]) == 2, 60, stage.logs)
        claim_runs_out(stage, "alone")
        ended(stage, "alone")

        assert [starts(stage, each) for each in members] == [1, 2]
        assert len(stage.effects("death ")) == (3 if pool == "prefork" else 1)
        assert stage.letters() == []
        stage.nothing_unacked()
