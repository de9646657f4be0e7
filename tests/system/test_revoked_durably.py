"""A revoked task does not run, whoever was there to hear of it: no worker, others, or one cut off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from celery.app.control import Control

from hardening.revoked.rules import LOOK_EVERY_SECONDS
from tests.helpers.wait import wait_until

from .stage import CROSSED, PROJECT, STRAIGHT, Sent, Stage

DEAD = {
    "STORE": {"BACKEND": "hardening.stores.redis.RedisStore", "OPTIONS": {"url": "redis://127.0.0.1:1/0"}}
}
IN_PYTHON = """
import django
django.setup()
from {project} import app
app.set_current()
{code}
"""


def client(stage: Stage, code: str, **env: Any) -> str:
    """Run code in a hardened process of the project's; what it said."""
    done = subprocess.run(
        [sys.executable, "-c", IN_PYTHON.format(project=PROJECT, code=code)],
        env={**os.environ, **stage.env(**env)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout + done.stderr


def revoke(stage: Stage, sent: Sent, **env: Any) -> str:
    return client(stage, f"app.control.revoke({sent.id!r})", **env)


def by_foreigner(stage: Stage, sent: Sent, **options: Any) -> None:
    """A client that is not hardened revokes: the workers are told, and nothing is written."""
    Control(stage.sender).revoke(sent.id, **options)


def known(stage: Stage) -> set[str]:
    """The ids that the store has."""
    found = json.loads(stage.manage("hardening_revoked", "list", "--json").stdout)
    return {each["id"] for each in found["revoked"] if "id" in each}


def is_known(stage: Stage, sent: Sent) -> None:
    wait_until(lambda: sent.id in known(stage), 20, stage.logs)


def never_runs(stage: Stage, sent: Sent) -> None:
    """A task that was sent later has run, and this one has not."""
    stage.state_of(stage.send("succeed"), "SUCCESS")
    stage.state_of(sent, "REVOKED")
    assert not stage.effects(f"started held {sent.id}")


def busy(stage: Stage, **options: Any) -> Sent:
    """A worker with one task that runs until it is released, so that what is sent now waits."""
    stage.worker(concurrency=1, **options)
    first = stage.send("held")
    wait_until(lambda: stage.effects(f"started held {first.id}"), 30, stage.logs)
    for _ in range(3):
        stage.send("held")  # A green pool takes a few more than it runs: what it has taken has begun.
    return first


@pytest.mark.parametrize(("broker", "pool"), [*STRAIGHT, ("redis", "threads"), ("rabbitmq", "solo")])
def test_a_task_that_is_revoked_while_no_worker_runs_never_runs(
    new_stage: Callable[..., Any], broker: str, pool: str
) -> None:
    with new_stage(broker) as stage:
        sent = stage.send("held")
        assert revoke(stage, sent) == ""

        stage.worker(pool=pool)

        never_runs(stage, sent)


def celery(stage: Stage, *arguments: str) -> str:
    """Celery's own command line, which does not start Django: a client that is not hardened."""
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", PROJECT, *arguments],
        env={**os.environ, **stage.env()},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_result_and_the_command_of_manage_py_revoke_as_durably(new_stage: Callable[..., Any]) -> None:
    with new_stage("rabbitmq") as stage:
        first, second = stage.send("held"), stage.send("held")
        client(stage, f"from celery.result import AsyncResult; AsyncResult({first.id!r}, app=app).revoke()")
        told = json.loads(stage.manage("hardening_revoked", "add", second.id, "--json").stdout)
        assert told == {"revoked": [{"id": second.id}], "dry_run": False}

        stage.worker()

        never_runs(stage, first)
        never_runs(stage, second)


def test_what_celerys_command_line_revokes_is_kept_by_the_worker_that_hears_it(
    new_stage: Callable[..., Any],
) -> None:
    with new_stage("redis") as stage:
        busy(stage)
        sent = stage.send("held")
        assert "flagged as revoked" in celery(stage, "control", "revoke", sent.id)
        is_known(stage, sent)

        stage.workers[0].kill("SIGKILL")
        stage.release()
        stage.worker()

        never_runs(stage, sent)


@pytest.mark.parametrize(("broker", "pool"), CROSSED)
def test_what_a_worker_heard_from_a_foreign_client_outlives_all_workers(
    new_stage: Callable[..., Any], broker: str, pool: str
) -> None:
    with new_stage(broker) as stage:
        busy(stage, pool=pool)
        sent = stage.send("held")
        by_foreigner(stage, sent, terminate=True)
        is_known(stage, sent)

        stage.workers[0].kill("SIGKILL")
        stage.release()
        stage.worker(pool=pool)

        never_runs(stage, sent)


def test_a_countdown_that_lay_with_a_killed_worker_is_revoked_when_it_comes_back(
    new_stage: Callable[..., Any],
) -> None:
    with new_stage("rabbitmq") as stage:
        worker = stage.worker()
        sent = stage.send("held", countdown=8)
        wait_until(
            lambda: f"held[{sent.id}] received" in stage.logs() or stage.unacked() == 0, 20, stage.logs
        )
        by_foreigner(stage, sent)
        is_known(stage, sent)

        worker.container.kill("SIGKILL")
        stage.worker()
        time.sleep(max(0.0, sent.at + 8.5 - time.time()))

        never_runs(stage, sent)


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_a_delayed_task_that_is_revoked_while_it_is_parked_never_runs(
    new_stage: Callable[..., Any], broker: str
) -> None:
    with new_stage(broker) as stage:
        stage.worker()
        sent = stage.send("held", countdown=16)  # Further away than what workers keep themselves.
        stage.state_of(stage.send("succeed"), "SUCCESS")
        stage.nothing_unacked()
        revoke(stage, sent)

        stage.workers[0].kill("SIGKILL")
        stage.worker()
        time.sleep(max(0.0, sent.at + 16.5 - time.time()))

        never_runs(stage, sent)


@pytest.mark.parametrize(("broker", "pool"), STRAIGHT)
def test_a_worker_that_missed_the_broadcast_learns_of_it_within_seconds(
    new_stage: Callable[..., Any], broker: str, pool: str
) -> None:
    with new_stage(broker) as stage:
        busy(stage, pool=pool)
        sent = stage.send("held")
        code = "from hardening.revoked.control import keep; from hardening.revoked.rules import Revoke; "
        client(stage, code + f"keep(app, [Revoke({sent.id!r})])")  # And nobody is told.

        time.sleep(LOOK_EVERY_SECONDS + 1)
        stage.release()

        never_runs(stage, sent)


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_a_stamp_that_was_revoked_while_no_worker_ran_stays_revoked(
    new_stage: Callable[..., Any], broker: str
) -> None:
    with new_stage(broker) as stage:
        sent = stage.send("held", stamped_headers=["customer"], customer=["7"])
        client(stage, "app.control.revoke_by_stamped_headers({'customer': ['7', '8']})")

        stage.worker()

        never_runs(stage, sent)


def test_a_task_runs_when_its_revoke_has_expired_or_was_taken_back(new_stage: Callable[..., Any]) -> None:
    with new_stage("redis") as stage:
        stage.release()
        expired, forgotten, kept = (stage.send("held") for _ in range(3))
        revoke(stage, expired, TEST_HARDENING=json.dumps({"REVOKED": {"EXPIRES": "1 s"}}))
        revoke(stage, forgotten)
        revoke(stage, kept)
        wait_until(lambda: known(stage) == {forgotten.id, kept.id}, 20)

        dry = stage.manage("hardening_revoked", "forget", forgotten.id, "--dry-run")
        assert "1 would be forgotten" in dry.stdout
        assert known(stage) == {forgotten.id, kept.id}
        told = json.loads(stage.manage("hardening_revoked", "forget", forgotten.id, "--json").stdout)
        assert told["forgotten"] == [{"id": forgotten.id}]
        again = stage.manage("hardening_revoked", "forget", forgotten.id, check=False)
        assert again.returncode == 1
        assert f"not revoked, as far as the store knows: {forgotten.id}" in again.stderr

        stage.worker()

        stage.state_of(expired, "SUCCESS")
        stage.state_of(forgotten, "SUCCESS")
        never_runs(stage, kept)


def test_what_is_taken_back_runs_on_a_worker_that_knew_it(new_stage: Callable[..., Any]) -> None:
    with new_stage("rabbitmq") as stage:
        busy(stage)
        sent = stage.send("held")
        revoke(stage, sent)
        wait_until(lambda: stage.said("flagged as revoked"), 20, stage.logs)
        stage.manage("hardening_revoked", "forget", sent.id)

        time.sleep(LOOK_EVERY_SECONDS + 1)
        stage.release()

        stage.state_of(sent, "SUCCESS")


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_with_a_store_that_is_down_the_workers_are_told_and_it_is_said(
    new_stage: Callable[..., Any], pool: str
) -> None:
    with new_stage("rabbitmq") as stage:
        hardening = json.dumps(DEAD)
        busy(stage, pool=pool, TEST_HARDENING=hardening)
        sent = stage.send("held")

        said = revoke(stage, sent, TEST_HARDENING=hardening)

        assert f"the revoke of {sent.id} could not be kept" in said
        wait_until(lambda: stage.said("cannot be read or kept now"), 20, stage.logs)
        wait_until(lambda: stage.said("flagged as revoked"), 20, stage.logs)
        stage.release()
        never_runs(stage, sent)
