"""What brokers refuse for a while is nobody's fault: it is left for later, and told why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import redis
from celery import Celery
from kombu import Queue

from dlq.operations.publishing import Outgoing, Published, Publisher


def message(queue: str) -> Outgoing:
    name = str(uuid4())
    return Outgoing(
        task_id=name,
        body=b"[[], {}, {}]",
        content_type="application/json",
        content_encoding="utf-8",
        headers={"id": name, "task": "shop.tasks.charge"},
        properties={"correlation_id": name},
        exchange="",
        routing_key=queue,
        queue=queue,
    )


def app_of(url: str, queue: Queue) -> Celery:
    app = Celery("publishing", broker=url, set_as_current=False)
    app.conf.task_queues = [queue]
    return app


def sent_by(app: Celery, messages: list[Outgoing]) -> Published:
    published = Published()
    with Publisher(app) as publisher:
        publisher.send(messages, published)
    return published


@contextmanager
def without_memory(url: str) -> Iterator[None]:
    client = redis.Redis.from_url(url)
    before: Any = client.config_get("maxmemory")
    client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        client.config_set("maxmemory", before["maxmemory"])


def test_a_redis_without_memory_takes_nothing_and_no_message_is_called_unsendable(redis_server) -> None:
    name = str(uuid4())
    app = app_of(redis_server.url, Queue(name))
    messages = [message(name) for _ in range(3)]

    with without_memory(redis_server.url):
        refused = sent_by(app, messages)

    assert (refused.sent, refused.failed) == ([], [])
    assert "memory" in str(refused.unreachable)
    assert sent_by(app, messages).sent == messages


def test_what_a_full_queue_of_rabbitmq_refuses_is_left_for_later(rabbitmq_server) -> None:
    name = str(uuid4())
    arguments = {"x-max-length": 2, "x-overflow": "reject-publish", "x-expires": 60_000}
    app = app_of(rabbitmq_server.url, Queue(name, queue_arguments=arguments))
    messages = [message(name) for _ in range(4)]

    published = sent_by(app, messages)

    assert (published.sent, published.failed) == (messages[:2], [])
    assert "full" in str(published.unreachable)
