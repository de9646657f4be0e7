"""On Redis the work of a dead worker runs elsewhere in seconds, and slow work runs once."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from hardening.testing.servers import RedisServer
from tests.helpers.wait import wait_until

from .stage import Sent, Stage

POOLS = ["prefork", "gevent", "threads", "solo"]
LEASE = {"SECONDS": "3 s", "RENEW_EVERY": "1 s"}
LEASE_SECONDS = 3.0


def hardening(**more: Any) -> str:
    return json.dumps({"LEASE": {**LEASE, **more}})


@pytest.fixture
def stage(new_stage: Callable[..., Any]) -> Iterator[Stage]:
    with new_stage("redis") as opened:
        yield opened


@pytest.fixture
def broker() -> Iterator[RedisServer]:
    """A Redis of the test's own, whose data outlive it."""
    with RedisServer(append_only=True) as server:
        yield server


def worker(stage: Stage, *, pool: str = "prefork", concurrency: int = 2, name: str = "", **env: Any) -> Any:
    return stage.worker(
        pool=pool,
        concurrency=concurrency,
        extra_args=("-n", f"{name or pool}@%h"),
        TEST_HARDENING=env.pop("TEST_HARDENING", hardening()),
        **env,
    )


def runs(stage: Stage, sent: Sent) -> tuple[int, int]:
    """How often a task started and ended."""
    return len(stage.effects(f"start {sent.id}")), len(stage.effects(f"end {sent.id}"))


def started(stage: Stage, sent: Sent, times: int = 1, timeout: float = 30) -> None:
    wait_until(lambda: runs(stage, sent)[0] >= times, timeout, stage.logs)


def ended(stage: Stage, sent: Sent, times: int = 1, timeout: float = 40) -> None:
    wait_until(lambda: runs(stage, sent)[1] >= times, timeout, stage.logs)


@pytest.mark.parametrize("pool", POOLS)
def test_a_task_that_outlasts_its_lease_many_times_runs_once(stage: Stage, pool: str) -> None:
    worker(stage, pool=pool, concurrency=1)
    sent = stage.send("outlast", 3.5 * LEASE_SECONDS)
    started(stage, sent)
    worker(stage, pool="prefork", name="other")

    ended(stage, sent)
    stage.nothing_unacked()

    assert runs(stage, sent) == (1, 1)


@pytest.mark.parametrize("pool", ["gevent", "solo"])
def test_a_computation_that_blocks_the_main_loop_keeps_its_lease(stage: Stage, pool: str) -> None:
    worker(stage, pool=pool, concurrency=1)
    sent = stage.send("compute", 3 * LEASE_SECONDS)
    started(stage, sent)
    worker(stage, pool="prefork", name="other")

    ended(stage, sent)
    stage.nothing_unacked()

    assert runs(stage, sent) == (1, 1)


def test_a_main_loop_that_is_blocked_beyond_its_budget_loses_its_leases(stage: Stage) -> None:
    worker(stage, pool="solo", TEST_HARDENING=hardening(WEDGED_AFTER="4 s"))
    sent = stage.send("outlast", 15)
    started(stage, sent)
    worker(stage, pool="prefork", name="other")

    started(stage, sent, 2)


@pytest.mark.parametrize(
    ("pool", "standby"),
    [("prefork", "prefork"), ("gevent", "gevent"), ("prefork", "threads"), ("gevent", "solo")],
)
def test_the_work_of_a_killed_worker_runs_elsewhere_in_seconds(stage: Stage, pool: str, standby: str) -> None:
    first = worker(stage, pool=pool, concurrency=1)
    sent = stage.send("until_released")
    started(stage, sent)
    worker(stage, pool=standby, concurrency=1, name="standby")

    first.kill("SIGKILL")
    killed_at = time.monotonic()
    started(stage, sent, 2)
    recovery = time.monotonic() - killed_at

    stage.release()
    stage.state_of(sent, "SUCCESS")
    stage.nothing_unacked()
    # Not a figure: it only shows that no other clock, of minutes, is at work.
    assert recovery < 3 * LEASE_SECONDS
    assert runs(stage, sent) == (2, 1)


@pytest.mark.parametrize("pool", POOLS)
def test_killed_connections_double_nothing(stage: Stage, pool: str) -> None:
    worker(stage, pool=pool, concurrency=2)
    sent = [stage.send("outlast", 4) for _ in range(4)]
    started(stage, sent[0])

    with redis.Redis.from_url(stage.broker_url) as client:
        for _ in range(3):
            for connection in client.client_list():
                if int(connection["id"]) != client.client_id():
                    client.client_kill_filter(_id=connection["id"])
            time.sleep(0.5)

    for each in sent:
        ended(stage, each)
        stage.state_of(each, "SUCCESS")
    stage.nothing_unacked()
    assert [runs(stage, each) for each in sent] == [(1, 1)] * 4


@pytest.mark.parametrize(
    ("pool", "seconds"), [("prefork", 0.3), ("prefork", 5), ("gevent", 5), ("threads", 5), ("solo", 0.3)]
)
def test_an_outage_of_redis_leaves_the_worker_alive_and_each_task_run_once(
    new_stage: Callable[..., Any], broker: RedisServer, pool: str, seconds: float
) -> None:
    with RedisServer() as results, new_stage("redis", own_redis=broker) as stage:
        running = worker(stage, pool=pool, CELERY_RESULT_BACKEND=results.url)
        sent = [stage.send("outlast", 3) for _ in range(5)]
        started(stage, sent[0])

        broker.kill()
        time.sleep(seconds)
        broker.start()

        for each in sent:
            ended(stage, each)
        stage.nothing_unacked()
        assert [runs(stage, each) for each in sent] == [(1, 1)] * 5
        assert running.process.is_running


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_work_that_redis_lost_is_held_again_by_the_worker_that_has_it(
    new_stage: Callable[..., Any], pool: str
) -> None:
    with (
        RedisServer() as forgetful,
        RedisServer() as results,
        new_stage("redis", own_redis=forgetful) as stage,
    ):
        first = worker(stage, pool=pool, concurrency=1, CELERY_RESULT_BACKEND=results.url)
        sent = stage.send("until_released")
        started(stage, sent)

        forgetful.kill()
        forgetful.start()
        wait_until(lambda: stage.said("it is leased anew"), 30, stage.logs)
        assert stage.unacked() == 1

        # As safe as before: the next death loses nothing either.
        worker(stage, name="standby", CELERY_RESULT_BACKEND=results.url)
        first.kill("SIGKILL")
        started(stage, sent, 2)
        stage.release()
        ended(stage, sent)
        stage.nothing_unacked()


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_a_redis_that_is_silent_for_longer_than_a_lease_doubles_nothing(
    new_stage: Callable[..., Any], broker: RedisServer, pool: str
) -> None:
    with RedisServer() as results, new_stage("redis", own_redis=broker) as stage:
        worker(stage, pool=pool, concurrency=1, CELERY_RESULT_BACKEND=results.url)
        sent = stage.send("until_released")
        started(stage, sent)
        worker(stage, name="standby", CELERY_RESULT_BACKEND=results.url)

        broker.pause()
        time.sleep(2 * LEASE_SECONDS)
        broker.resume()
        # Both have renewed and swept again: the lease lies ahead.
        wait_until(lambda: leased_for(broker) > 1, 30, stage.logs)
        time.sleep(LEASE_SECONDS)

        stage.release()
        ended(stage, sent)
        stage.nothing_unacked()
        assert runs(stage, sent) == (1, 1)


def leased_for(broker: RedisServer) -> float:
    """Seconds until the next lease runs out."""
    with redis.Redis.from_url(broker.url) as client:
        seconds, micros = client.time()
        scores = [score for _, score in client.zrange("unacked_index.leased", 0, -1, withscores=True)]
    return float(min(scores, default=0.0) - seconds - micros / 1e6)


def test_a_paused_worker_begins_nothing_that_others_have(stage: Stage) -> None:
    first = worker(stage, pool="prefork", concurrency=2)
    running = stage.send("until_released")
    started(stage, running)
    # One that waits for its time in the memory of the first worker.
    reserved = stage.send("outlast", 0, countdown=2)
    wait_until(lambda: stage.said(f"[{reserved.id}] received"), 20, stage.logs)
    first.process.signal_group(signal.SIGSTOP)
    worker(stage, name="standby", concurrency=2)
    ended(stage, reserved)

    first.process.signal_group(signal.SIGCONT)
    wait_until(
        lambda: stage.said(f"the lease of task {reserved.id} was lost before it began"), 20, stage.logs
    )

    stage.release()
    ended(stage, running, 2)
    stage.nothing_unacked()
    assert runs(stage, reserved) == (1, 1)


def test_a_paused_worker_learns_that_its_lease_was_lost(stage: Stage) -> None:
    first = worker(stage, pool="threads", concurrency=1)
    sent = stage.send("until_released")
    started(stage, sent)
    worker(stage, name="standby")

    first.process.signal_group(signal.SIGSTOP)
    started(stage, sent, 2)
    first.process.signal_group(signal.SIGCONT)

    wait_until(lambda: stage.said(f"[{sent.id}] lost the lease of its message"), 20, stage.logs)
    stage.release()
    ended(stage, sent, 2)
    stage.nothing_unacked()
    wait_until(lambda: stage.said("is a duplicate") == 1, 20, stage.logs)


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_what_waits_for_its_time_or_its_rate_keeps_its_lease_and_survives_a_reconnect(
    new_stage: Callable[..., Any], broker: RedisServer, pool: str
) -> None:
    with RedisServer() as results, new_stage("redis", own_redis=broker) as stage:
        running = worker(stage, pool=pool, concurrency=4, CELERY_RESULT_BACKEND=results.url)
        busy = stage.send("until_released")
        limited = [stage.send("limited_rate") for _ in range(4)]
        due = stage.send("outlast", 0, countdown=LEASE_SECONDS - 0.5)
        started(stage, busy)
        started(stage, limited[0])

        broker.kill()
        time.sleep(1)
        broker.start()

        for each in (*limited, due):
            ended(stage, each)
        wait_until(lambda: stage.unacked() == 1, 20, lambda: str(stage.unacked()))
        assert {runs(stage, each) for each in (*limited, due)} == {(1, 1)}
        # The credit of what waited is back: the worker takes as many as before, beside what runs.
        more = [stage.send("until_released") for _ in range(3)]
        for each in more:
            started(stage, each, timeout=60)
        assert runs(stage, busy) == (1, 0)
        assert running.process.is_running


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_without_the_atomic_take_leases_work_as_well(stage: Stage, pool: str) -> None:
    settings = hardening(ATOMIC_TAKE=False)
    first = worker(stage, pool=pool, concurrency=1, TEST_HARDENING=settings)
    sent = stage.send("until_released")
    started(stage, sent)
    worker(stage, pool=pool, concurrency=1, name="standby", TEST_HARDENING=settings)
    time.sleep(2 * LEASE_SECONDS)
    assert runs(stage, sent) == (1, 0)

    first.kill("SIGKILL")
    started(stage, sent, 2)
    stage.release()
    stage.state_of(sent, "SUCCESS")
    stage.nothing_unacked()
    assert runs(stage, sent) == (2, 1)


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_workers_that_talk_to_each_other_hold_only_their_tasks(stage: Stage, pool: str) -> None:
    for name in ("one", "two", "three"):
        stage.worker(
            pool=pool,
            concurrency=3,
            social=True,
            extra_args=("-n", f"{name}@%h"),
            TEST_HARDENING=hardening(),
        )
    sent = [stage.send("until_released") for _ in range(3)]
    for each in sent:
        started(stage, each)
    replies: Any = stage.sender.control.ping(timeout=5)
    assert len(replies) == 3
    wait_until(lambda: stage.unacked() == 3, 10, lambda: str(stage.unacked()))
    stage.release()
    for each in sent:
        ended(stage, each)
    stage.nothing_unacked()


def test_an_id_that_is_sent_again_is_work_of_its_own(stage: Stage) -> None:
    runs_in_all = 0
    for _ in range(2):  # The second time, the first one's success is on record.
        first = worker(stage, concurrency=1)
        sent = stage.send("until_released", task_id="nightly")
        runs_in_all += 1
        started(stage, sent, runs_in_all)
        first.kill("SIGKILL")
        other = worker(stage, name="other")
        runs_in_all += 1
        started(stage, sent, runs_in_all)
        stage.release()
        stage.nothing_unacked()
        stage.withhold()
        other.process.stop(timeout=20)

    assert runs(stage, sent) == (4, 2)
