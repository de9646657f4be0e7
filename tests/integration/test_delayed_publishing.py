"""What is due goes to the broker with its confirmation, and what the broker refuses is told apart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from kombu import Exchange, Queue
from kombu.exceptions import OperationalError

from hardening.core.identity import DELAYED_HEADER
from hardening.delayed.entry import Delayed, dump_message
from hardening.delayed.publishing import Publisher
from tests.helpers.delayed_tasks import limit_queue, vhost_of


@pytest.fixture
def app(rabbitmq_server) -> Iterator[Celery]:
    vhost = f"delayed-{uuid4().hex[:8]}"
    url = rabbitmq_server.add_vhost(vhost)
    app = Celery("publishing", broker=url, set_as_current=False)
    with app.connection() as connection:
        channel = connection.default_channel
        events = Exchange("events", type="topic")
        for name in ("shop", "post", "full"):
            Queue(name, events, routing_key="order.#")(channel).declare()
    yield app
    rabbitmq_server.delete_vhost(vhost)


class Message:
    content_type, content_encoding = "application/json", "utf-8"

    def __init__(self, **headers: Any) -> None:
        self.headers = {"id": "one", "task": "shop.charge", **headers}
        self.properties = {"priority": 3, "correlation_id": "one", "expiration": "1", "user_id": "nobody"}
        self.delivery_info = {"exchange": "events", "routing_key": "order.new"}


def entry(queue: str = "shop", body: bytes = b"[]", **headers: Any) -> Delayed:
    own_id = uuid4().hex
    text = dump_message(Message(**headers), body=body, own_id=own_id)
    return Delayed(id=own_id, task_id="one", task="shop.charge", queue=queue, due=0.0, message=text)


def taken(app: Celery, queue: str = "shop") -> list[Any]:
    found = []
    with app.connection() as connection:
        bound: Any = Queue(queue)(connection.default_channel)
        while (message := bound.get(no_ack=True)) is not None:
            found.append(message)
    return found


def test_a_message_goes_to_its_very_queue_in_order_and_as_it_was(app) -> None:
    entries = [entry(body=f"[{number}]".encode(), own={"x": [1.5, None]}) for number in range(5)]

    assert Publisher(app)(entries) == [each.id for each in entries]

    messages = taken(app)
    assert [message.body for message in messages] == [f"[{number}]" for number in range(5)]
    first = messages[0]
    assert first.headers == {
        "id": "one",
        "task": "shop.charge",
        "own": {"x": [1.5, None]},
        DELAYED_HEADER: entries[0].id,
    }
    assert first.properties["priority"] == 3
    assert first.properties["correlation_id"] == "one"
    assert first.properties["delivery_mode"] == 2
    assert "expiration" not in first.properties
    assert first.delivery_info["redelivered"] is False
    assert taken(app, "post") == []


def test_a_queue_that_is_full_or_gone_holds_up_no_other(app, rabbitmq_server, caplog) -> None:
    limit_queue(rabbitmq_server, vhost_of(app.conf.broker_url), "full", 0)
    full, gone, fine, last = entry("full"), entry("gone"), entry(), entry("post")

    assert Publisher(app)([full, gone, fine, last]) == [fine.id, last.id]

    assert len(taken(app)) == len(taken(app, "post")) == 1
    warned = [record.message for record in caplog.records if record.name == "hardening"]
    assert len(warned) == 1
    assert "MessageNacked" in warned[0]


def test_a_broker_that_is_down_raises_soon(rabbitmq_server) -> None:
    app = Celery("down", broker="amqp://127.0.0.1:1//", set_as_current=False)
    begun = time.monotonic()

    with pytest.raises(OperationalError, match="refused"):
        Publisher(app)([entry()])

    assert time.monotonic() - begun < 5


def test_a_broker_without_memory_gets_nothing_that_it_would_keep(app, rabbitmq_server) -> None:
    rabbitmq_server.rabbitmqctl("set_vm_memory_high_watermark", "0.0001")
    try:
        for _ in range(2):
            begun = time.monotonic()
            with pytest.raises(OSError, match="timed out"):
                Publisher(app)([entry()])
            assert time.monotonic() - begun < 6
    finally:
        rabbitmq_server.rabbitmqctl("set_vm_memory_high_watermark", "0.6")
    one = entry()
    assert Publisher(app)([one]) == [one.id]

    assert len(taken(app)) == 1
