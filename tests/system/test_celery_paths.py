"""Ways of ending that plain Celery handles badly, with real workers; see docs/explanation/celery-paths.md."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import redis
from celery import chord, group, signature

from hardening.private import celery_version
from tests.helpers.wait import wait_until

from .stage import Sent, Stage

TASKS = ("-I", "tests.system.project.paths")
CHILDREN = 5
EX_CONFIG = 78


@pytest.fixture(scope="module", params=[("redis", "prefork"), ("rabbitmq", "gevent")], ids="-".join)
def running(request: pytest.FixtureRequest, new_stage: Callable[..., Any]) -> Iterator[Stage]:
    """Each broker and pool once; on prefork each child runs one task. Each test has task ids of its own."""
    broker, pool = request.param
    recycled = ("--max-tasks-per-child", "1") if pool == "prefork" else ()
    with new_stage(broker) as stage:
        stage.pool = pool
        stage.worker(pool=pool, concurrency=3, extra_args=(*TASKS, *recycled))
        yield stage


def starts(stage: Stage, sent: Sent) -> list[str]:
    return stage.effects(f"start {sent.id}")


def begun(stage: Stage, sent: Sent, times: int = 1) -> None:
    wait_until(lambda: len(starts(stage, sent)) >= times, 40, stage.logs)


def nothing_left(stage: Stage, *sent: Sent) -> None:
    """No message of theirs is with a worker, and none was kept."""
    stage.nothing_unacked(40)
    assert [letter for each in sent for letter in stage.letters(task_id=each.id)] == []


# These open stages of their own, so they come before the shared one is opened.


def test_a_cold_shutdown_of_threads_loses_nothing(new_stage: Callable[..., Any]) -> None:
    with new_stage("redis") as stage:
        worker = stage.worker(pool="threads", concurrency=1, extra_args=(*TASKS, "-n", "first@%h"))
        sent = stage.send("paths.held")
        begun(stage, sent)
        waiting = stage.send("paths.child")

        worker.process.send_signal(signal.SIGQUIT)
        stage.release()  # A thread cannot be cut.
        worker.process.wait(timeout=40)

        stage.worker(extra_args=TASKS)
        for each in (sent, waiting):
            stage.state_of(each, "SUCCESS", 40)
        nothing_left(stage, sent, waiting)
        assert len(starts(stage, waiting)) == 1


def test_a_soft_shutdown_of_prefork_lets_what_ends_in_its_time_end_and_gives_the_rest_back(
    new_stage: Callable[..., Any],
) -> None:
    with new_stage("redis") as stage:
        soft = json.dumps({"CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT": 3})
        worker = stage.worker(concurrency=2, extra_args=("-n", "first@%h"), TEST_CELERY=soft)
        long, short = stage.send("stoppable"), stage.send("work_for", 1)
        for each in (long, short):
            begun(stage, each)
        waiting = stage.send("work_for", 0)

        worker.process.send_signal(signal.SIGQUIT)

        worker.process.wait(timeout=40)
        assert short.state == "SUCCESS"
        with redis.Redis.from_url(stage.broker_url) as client:
            assert (client.llen("celery"), stage.unacked()) == (2, 0)
        assert len(starts(stage, short)) == len(starts(stage, long)) == 1
        assert starts(stage, waiting) == stage.letters() == []


def test_a_worker_says_what_its_redis_would_lose(new_stage: Callable[..., Any]) -> None:
    with new_stage("redis") as stage:  # Its Redis has no append-only file.
        worker = stage.worker()
        assert worker.logs().count("CH029: Redis keeps no append-only file") == 1


def test_a_gevent_pool_that_celery_did_not_patch_for_does_not_start(new_stage: Callable[..., Any]) -> None:
    with new_stage("redis") as stage:
        worker = stage.worker(wait=False, extra_args=("-Pgevent",))  # In one word.

        assert worker.process.wait(timeout=40) == EX_CONFIG
        assert "CH027: the pool is gevent and its sockets are not patched" in worker.logs()


def test_a_child_that_is_replaced_after_each_task_loses_and_doubles_none(running: Stage) -> None:
    sent = [running.send("paths.child") for _ in range(CHILDREN)]

    for each in sent:
        running.state_of(each, "SUCCESS", 60)
    nothing_left(running, *sent)
    lines = [line for each in sent for line in starts(running, each)]
    assert len(lines) == CHILDREN
    if running.pool == "prefork":
        assert len({line.split()[2] for line in lines}) == CHILDREN


def test_what_is_revoked_while_it_runs_ends_as_revoked_and_never_runs_again(running: Stage) -> None:
    sent = running.send("paths.held")
    begun(running, sent)

    running.sender.control.revoke(sent.id, terminate=True, signal="SIGKILL")

    running.state_of(sent, "REVOKED", 40)
    nothing_left(running, sent)
    running.state_of(running.send("succeed", 1), "SUCCESS", 40)
    assert len(starts(running, sent)) == 1


def test_a_task_that_says_ignore_ends_once_and_is_named_in_the_log(running: Stage) -> None:
    sent = running.send("paths.ignoring")
    begun(running, sent)

    wait_until(lambda: running.said(f"Task paths.ignoring[{sent.id}] ignored"), 40, running.logs)
    nothing_left(running, sent)
    assert (sent.state, len(starts(running, sent))) == ("PENDING", 1)


@pytest.mark.parametrize("stored", [True, False])
def test_a_child_that_dies_after_its_success_is_run_again_only_where_nobody_can_know(
    running: Stage, stored: bool
) -> None:
    if running.pool != "prefork":  # Elsewhere the child is the worker.
        return
    known = stored and celery_version() >= (5, 7)
    sent = running.send("paths.dying_afterwards", ignore_result=not stored)

    begun(running, sent, 1 if known else 2)
    if stored:
        running.state_of(sent, "SUCCESS", 40)
    nothing_left(running, sent)
    assert len(starts(running, sent)) == (1 if known else 2)


def test_broken_hooks_change_nothing_that_callers_see(running: Stage) -> None:
    app = running.sender
    header = group(
        signature("paths.flaky", args=(2,), app=app),
        signature("paths.flaky", args=(3,), app=app),
    )
    body = running.sent(chord(header, signature("add", app=app), app=app).apply_async())
    failing = running.send("paths.failing", link_error=signature("errback", app=app))

    running.state_of(body, "SUCCESS", 60)
    assert app.backend.get_task_meta(body.id, cache=False)["result"] == 5
    assert running.letter_of(failing).error_class == "ValueError"
    running.state_of(failing, "FAILURE", 40)
    assert isinstance(app.backend.get_task_meta(failing.id, cache=False)["result"], ValueError)
    wait_until(partial(running.effects, f"errback {failing.id}"), 40, running.logs)
    running.nothing_unacked(40)


def test_a_task_that_wants_its_message_again_gets_it_later_and_not_for_ever(running: Stage) -> None:
    sent = running.send("paths.putting_back")

    letter = running.letter_of(sent, 60)

    running.state_of(sent, "FAILURE", 40)
    running.nothing_unacked(40)
    assert (letter.reason, len(running.attempts(letter))) == ("retries_exhausted", 3)
    times = [float(line.split()[2]) for line in starts(running, sent)]
    assert len(times) == 3
    assert all(after - before >= 1 for before, after in pairwise(times))
