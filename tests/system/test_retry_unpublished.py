"""A retry that cannot be published costs nothing: its message stays with the broker and comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from hardening.returning import SHORTEST_WAIT_SECONDS
from hardening.testing.servers import RabbitMQServer, RedisServer
from tests.helpers.wait import wait_until

from .stage import STRAIGHT, Sent, Stage
from .test_retries import counts, gaps, starts

OFFERED = " back to the broker"  # Logged by the worker, whether it goes or cannot go.
FULL = '{"max-length": 0, "overflow": "reject-publish"}'


@contextmanager
def refusing(stage: Stage, request: pytest.FixtureRequest) -> Iterator[None]:
    """The broker takes no new message for a while; what it has it delivers."""
    if stage.broker_url.startswith("redis"):
        with redis.Redis.from_url(stage.broker_url) as client:
            client.config_set("maxmemory", 1)  # Its policy is noeviction: what needs memory is refused.
            try:
                yield
            finally:
                client.config_set("maxmemory", 0)
        return
    server: RabbitMQServer = request.getfixturevalue("rabbitmq_server")
    vhost = stage.broker_url.rpartition("/")[2]
    server.rabbitmqctl("set_policy", "-p", vhost, "full", "^celery$", FULL, "--apply-to", "queues")
    try:
        yield
    finally:
        server.rabbitmqctl("clear_policy", "-p", vhost, "full")


@contextmanager
def blocking(stage: Stage, request: pytest.FixtureRequest) -> Iterator[None]:
    """RabbitMQ is short of memory: it neither refuses nor takes what is published, and delivers the rest."""
    server: RabbitMQServer = request.getfixturevalue("rabbitmq_server")
    server.rabbitmqctl("set_vm_memory_high_watermark", "0.0001")
    try:
        yield
    finally:
        server.rabbitmqctl("set_vm_memory_high_watermark", "0.6")


def begun(stage: Stage) -> Sent:
    """A task whose first attempt has begun, and fails when the stage is released."""
    sent = stage.send("stubborn")
    wait_until(lambda: starts(stage, sent), 20, stage.logs)
    return sent


def left(stage: Stage) -> int:
    """Messages that the broker still has and nobody works on."""
    if stage.broker_url.startswith("redis"):  # Nothing but visibility_timeout gives a dead worker's back.
        with redis.Redis.from_url(stage.broker_url) as client:
            return int(client.llen("celery")) + stage.unacked()
    with stage.sender.connection_for_read() as connection:
        channel: Any = connection.default_channel
        return int(channel.queue_declare("celery", passive=True).message_count)


def turned_away(stage: Stage, times: int) -> None:
    """Wait until a message whose retry was refused was to go back so many times."""
    wait_until(lambda: stage.said(OFFERED) >= times, 30, stage.logs)


@pytest.mark.parametrize(("broker", "pool"), STRAIGHT)
def test_a_refused_retry_leaves_its_message_until_the_broker_takes_messages_again(
    new_stage: Callable[..., Any],
    make_redis: Callable[..., RedisServer],
    request: pytest.FixtureRequest,
    broker: str,
    pool: str,
) -> None:
    with new_stage(broker, own_redis=make_redis()) as stage:
        worker = stage.worker(pool=pool)
        sent = begun(stage)
        with refusing(stage, request):
            stage.release()
            # On Redis it goes once: what Redis does not take back is sent again until it does.
            turned_away(stage, 1 if broker == "redis" else 2)
            assert set(counts(stage, sent)) == {0}
            assert stage.letters() == []

        stage.state_of(sent, "SUCCESS")
        stage.nothing_unacked()
        assert counts(stage, sent)[-2:] == [0, 1]
        # No hot loop: only the first start was before the refusal, only the last one is a retry.
        assert all(gap >= SHORTEST_WAIT_SECONDS for gap in gaps(stage, sent)[1:-1])

        stage.withhold()
        sent = begun(stage)
        with refusing(stage, request):
            before = stage.said(OFFERED)
            stage.release()
            turned_away(stage, before + 1)
            worker.kill("SIGKILL")

            wait_until(lambda: left(stage) == 1, 20, lambda: f"{left(stage)} left; {stage.logs()}")
        assert sent.state in ("PENDING", "RETRY")
        assert stage.letters() == []


def test_a_retry_that_rabbitmq_lets_wait_is_sent_when_it_takes_messages_again(
    new_stage: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    with new_stage("rabbitmq") as stage:
        stage.worker(pool="gevent")
        sent = begun(stage)
        with blocking(stage, request):
            stage.release()
            wait_until(lambda: stage.said("again in 100 ms"), 20, stage.logs)
            assert stage.unacked() == 1
            assert counts(stage, sent) == [0]

        # Celery stores RETRY after it published: the state may be that of either.
        wait_until(lambda: counts(stage, sent)[-2:] == [0, 1], 30, stage.logs)
        stage.nothing_unacked()
        assert stage.letters() == []


def test_on_gevent_a_retry_waits_for_a_result_backend_that_is_down(
    new_stage: Callable[..., Any], make_redis: Callable[..., RedisServer]
) -> None:
    # Outside prefork Celery subscribes to the result of what it publishes, so that each retry needs the
    # result backend as well as the broker.
    backend = make_redis()
    with new_stage("redis") as stage:
        stage.worker(pool="gevent", CELERY_RESULT_BACKEND=backend.url)
        sent = begun(stage)
        backend.stop()
        stage.release()
        turned_away(stage, 2)
        assert stage.letters() == []

        backend.start()

        wait_until(lambda: 1 in counts(stage, sent), 20, stage.logs)
        stage.nothing_unacked()
        assert stage.letters() == []
        assert set(counts(stage, sent)) == {0, 1}
        assert all(gap >= SHORTEST_WAIT_SECONDS for gap in gaps(stage, sent)[:-1])
