"""Hardened workers beside plain ones in one Redis, and over every way in which queues can be laid out."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from hardening.testing.servers import RedisServer
from hardening.testing.servers.sentinel import RedisSentinel
from tests.helpers.wait import wait_until

from .stage import Sent, Stage
from .test_leases import LEASE_SECONDS, ended, hardening, runs, started, worker

PLAIN_TIMEOUT_SECONDS = 5


@pytest.fixture
def stage(new_stage: Callable[..., Any]) -> Iterator[Stage]:
    with new_stage("redis") as opened:
        yield opened


def plain(stage: Stage, *, name: str = "plain", **env: Any) -> Any:
    """A worker of the same project without celery-hardening, with a short visibility timeout."""
    return worker(
        stage,
        name=name,
        TEST_WITHOUT_APPS="hardening,dlq,beat_leader",
        TEST_CELERY=celery(CELERY_WORKER_PREFETCH_MULTIPLIER=1, **env),
    )


def celery(**more: Any) -> str:
    options = {"visibility_timeout": PLAIN_TIMEOUT_SECONDS, **more.pop("options", {})}
    return json.dumps(
        {
            "CELERY_TASK_ACKS_LATE": True,
            "CELERY_TASK_REJECT_ON_WORKER_LOST": True,
            "CELERY_BROKER_TRANSPORT_OPTIONS": options,
            **more,
        }
    )


def test_plain_workers_do_not_take_what_a_hardened_one_holds(stage: Stage) -> None:
    worker(stage, pool="prefork", concurrency=1)
    sent = stage.send("outlast", 2.5 * PLAIN_TIMEOUT_SECONDS)
    started(stage, sent)
    plain(stage, options={"unacked_restore_interval": 1, "unacked_restore_throttle": 1})

    ended(stage, sent)
    stage.nothing_unacked()

    assert runs(stage, sent) == (1, 1)


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_what_a_dead_plain_worker_held_is_given_back_after_its_own_timeout(stage: Stage, pool: str) -> None:
    first = plain(stage)
    sent = stage.send("until_released")
    started(stage, sent)
    taken_at = time.monotonic()
    worker(stage, pool=pool, TEST_CELERY=celery())

    first.kill("SIGKILL")
    started(stage, sent, 2)

    assert time.monotonic() - taken_at > PLAIN_TIMEOUT_SECONDS - 1
    stage.release()
    stage.state_of(sent, "SUCCESS")
    stage.nothing_unacked()


def test_a_fleet_is_switched_over_and_back_under_load_and_each_task_runs_once(stage: Stage) -> None:
    with load(stage) as sent:
        workers = [plain(stage, name="a0", visibility_timeout=3600), plain(stage, name="b0")]
        for number, start in enumerate((worker, worker, plain, plain), start=1):
            place = number % 2
            workers[place].process.stop(timeout=30)
            workers[place] = start(stage, name=f"{'ab'[place]}{number}")

    for each in sent:
        stage.state_of(each, "SUCCESS", timeout=60)
    stage.nothing_unacked()
    assert len(sent) > 50
    assert {runs(stage, each) for each in sent} == {(1, 1)}


@contextmanager
def load(stage: Stage, pause_seconds: float = 0.1) -> Iterator[list[Sent]]:
    """Tasks, one after another, as long as the block lasts."""
    sent: list[Sent] = []
    over = threading.Event()

    def send() -> None:
        while not over.wait(pause_seconds):
            sent.append(stage.send("outlast", 0.05))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("atomic", [True, False])
def test_queues_priorities_and_a_key_prefix_are_taken_and_given_back_as_they_were(
    stage: Stage, atomic: bool
) -> None:
    options = {"global_keyprefix": "shop:", "priority_steps": [0, 3, 6, 9], "queue_order_strategy": "sorted"}
    settings = celery(options={**options, "visibility_timeout": 3600})
    stage.sender.conf.broker_transport_options = options
    first = stage.worker(
        concurrency=4,
        extra_args=("-n", "first@%h", "-Q", "one,two"),
        TEST_HARDENING=hardening(ATOMIC_TAKE=atomic),
        TEST_CELERY=settings,
    )
    sent = [
        stage.send("until_released", queue=queue, priority=priority)
        for queue, priority in itertools.product(["one", "two"], [0, 9])
    ]
    for each in sent:
        started(stage, each)
    with redis.Redis.from_url(stage.broker_url) as client:
        assert client.hlen("shop:unacked.leased") == 4
        assert client.zcard("shop:unacked_index.leased") == 4
        assert client.keys("unacked*") == []
        first.kill("SIGKILL")
        stage.worker(
            concurrency=4,
            extra_args=("-n", "other@%h", "-Q", "elsewhere"),
            TEST_HARDENING=hardening(ATOMIC_TAKE=atomic),
            TEST_CELERY=settings,
        )
        lists = ["shop:one", "shop:one\x06\x169", "shop:two", "shop:two\x06\x169"]
        wait_until(lambda: [client.llen(key) for key in lists] == [1] * 4, 30, stage.logs)

        stage.worker(
            concurrency=4,
            extra_args=("-n", "second@%h", "-Q", "one,two"),
            TEST_HARDENING=hardening(ATOMIC_TAKE=atomic),
            TEST_CELERY=settings,
        )
        stage.release()
        for each in sent:
            ended(stage, each)
        wait_until(lambda: client.hlen("shop:unacked.leased") == 0, 20, stage.logs)


def test_critical_messages_are_taken_before_others(stage: Stage) -> None:
    options = {"priority_steps": [0, 3, 6, 9], "visibility_timeout": 3600}
    stage.sender.conf.broker_transport_options = options
    low = [stage.send("outlast", 0, priority=9) for _ in range(5)]
    high = [stage.send("outlast", 0, priority=0) for _ in range(5)]
    worker(stage, pool="solo", TEST_CELERY=celery(options=options))

    for each in (*low, *high):
        ended(stage, each)

    order = [line.split()[1] for line in stage.effects("start")]
    assert set(order[:5]) == {each.id for each in high}


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_an_idle_worker_takes_a_message_of_any_priority_within_a_second_or_so(
    stage: Stage, pool: str
) -> None:
    options = {"priority_steps": [0, 3, 6, 9], "visibility_timeout": 3600}
    stage.sender.conf.broker_transport_options = options
    worker(stage, pool=pool, TEST_CELERY=celery(options=options))
    for priority in (0, 9, 0, 9):
        sent = stage.send("outlast", 0, priority=priority)
        started(stage, sent, timeout=10)
    # Once it was seen, its list is watched: no more waiting for the next look.
    sent_at = time.monotonic()
    for _ in range(10):
        started(stage, stage.send("outlast", 0, priority=9), timeout=5)
    assert time.monotonic() - sent_at < 5


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_a_redis_that_is_full_loses_no_message(new_stage: Callable[..., Any], pool: str) -> None:
    with (
        RedisServer(maxmemory="6mb") as full,
        RedisServer() as results,
        new_stage("redis", own_redis=full) as stage,
    ):
        running = worker(stage, pool=pool, concurrency=1, CELERY_RESULT_BACKEND=results.url)
        first = stage.send("until_released")
        started(stage, first)
        rest = [stage.send("outlast", 0) for _ in range(6)]
        with redis.Redis.from_url(stage.broker_url) as client:
            wait_until(lambda: client.llen("celery") + stage.unacked() == 7, 20, stage.logs)
            client.config_set("maxmemory", 1)
            stage.release()
            wait_until(lambda: stage.said("Redis is full"), 30, stage.logs)
            assert running.process.is_running
            client.config_set("maxmemory", 0)
        for each in (first, *rest):
            ended(stage, each)
        stage.nothing_unacked()
        assert {runs(stage, each) for each in rest} == {(1, 1)}


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_a_fail_over_by_sentinel_keeps_running_work(new_stage: Callable[..., Any], pool: str) -> None:
    with (
        RedisServer() as primary,
        RedisServer(replica_of=primary) as replica,
        RedisSentinel(primary) as sentinel,
        RedisServer() as results,
        new_stage("redis", own_redis=primary) as stage,
    ):
        wait_until(lambda: sentinel.replica_count() == 1, 30)
        running = worker(
            stage,
            pool=pool,
            concurrency=1,
            CELERY_BROKER_URL=sentinel.url,
            CELERY_RESULT_BACKEND=results.url,
            TEST_CELERY=celery(options={"master_name": "master"}),
        )
        sent = stage.send("until_released")
        started(stage, sent)

        primary.kill()
        wait_until(lambda: sentinel.master_port() == replica.port, 60)
        with redis.Redis(port=replica.port) as client:
            index = "unacked_index.leased"
            wait_until(lambda: _renewed(client, index), 60, stage.logs)
            stage.release()
            ended(stage, sent)
            wait_until(lambda: client.hlen("unacked.leased") == 0, 30, stage.logs)
        assert runs(stage, sent) == (1, 1)
        assert running.process.is_running


def _renewed(client: Any, index: str) -> bool:
    """Whether a lease lies in the future by the server's clock."""
    try:
        now = client.time()[0]
        return any(score > now for _, score in client.zrange(index, 0, -1, withscores=True))
    except redis.RedisError:
        return False


def test_a_worker_of_a_redis_that_stops_as_it_starts_lives_on(
    new_stage: Callable[..., Any],
) -> None:
    with (
        RedisServer(append_only=True) as broker,
        RedisServer() as results,
        new_stage("redis", own_redis=broker) as stage,
    ):
        running = worker(stage, CELERY_RESULT_BACKEND=results.url)
        broker.kill()
        time.sleep(LEASE_SECONDS)
        broker.start()
        sent = stage.send("outlast", 0)
        ended(stage, sent)
        assert running.process.is_running
