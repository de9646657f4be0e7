"""What RabbitMQ says to our declaration: yes, no, or that another one was there first. None ends a worker."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from kombu import Connection, Queue

from hardening.intake.dead_lettered import _consuming
from hardening.queues import DEAD_LETTER_EXCHANGE, DEAD_LETTERED_QUEUE, durable_queue
from hardening.testing.servers import RabbitMQServer
from tests.helpers.wait import wait_until


@pytest.fixture
def connection(rabbitmq_url: str) -> Iterator[Connection]:
    with Connection(rabbitmq_url) as found:
        yield found


consuming: Any = _consuming


def intake() -> Any:
    taken: list[Any] = []
    return SimpleNamespace(accept=["json"], take=taken.append, taken=taken)


def arrives(connection: Connection, taken: list[Any]) -> Any:
    """Reject a message of a queue of ours; what comes of it."""
    channel: Any = connection.channel()
    queue: Any = durable_queue("orders", quorum=False)(channel)
    queue.declare()
    connection.Producer(channel).publish("an order", exchange="orders", routing_key="orders")
    wait_until(queue.get, 20).reject(requeue=False)

    def came() -> Any:
        with suppress(TimeoutError):
            connection.drain_events(timeout=0.2)
        return taken

    return wait_until(came, 20)[0]


def test_it_is_declared_again_and_again_and_delivers(connection: Connection) -> None:
    first, second = intake(), intake()
    assert consuming(connection, first) is not None
    consuming(connection, second).close()

    assert arrives(connection, first.taken).headers["x-death"][0]["queue"] == "orders"


def test_a_queue_of_the_projects_own_making_is_used_as_it_is(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    own = Queue(DEAD_LETTERED_QUEUE, queue_arguments={"x-queue-type": "quorum"}, durable=True)
    channel: Any = connection.channel()
    own(channel).queue_declare()
    mine = intake()

    assert consuming(connection, mine) is not None

    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    channel.queue_bind(DEAD_LETTERED_QUEUE, DEAD_LETTER_EXCHANGE, "")
    assert arrives(connection, mine.taken).headers["x-death"][0]["reason"] == "rejected"


def test_a_worker_without_the_right_says_so_and_goes_on(
    rabbitmq_server: RabbitMQServer, rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    vhost = rabbitmq_url.rpartition("/")[2]
    user = f"modest-{vhost}"
    rabbitmq_server.rabbitmqctl("add_user", user, "secret")
    rabbitmq_server.rabbitmqctl("set_permissions", "-p", vhost, user, "^celery$", "^celery$", "^celery$")
    try:
        with Connection(rabbitmq_url.replace("guest:guest", f"{user}:secret")) as connection:
            assert consuming(connection, intake()) is None
            assert connection.connected
            [record] = caplog.records
            assert record.levelno == logging.ERROR
            assert "the right to configure" in record.getMessage()
            channel: Any = connection.channel()
            channel.queue_declare("celery")
    finally:
        rabbitmq_server.rabbitmqctl("delete_user", user)
