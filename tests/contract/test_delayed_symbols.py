"""What parking reads of kombu and Celery behaves as we rely on; a change fails here."""

from __future__ import annotations

import inspect
from typing import Any, cast

import pytest
from celery import Celery
from celery.worker import strategy
from celery.worker.request import Request
from kombu import Connection, Exchange, Queue

from tests.helpers.hardened_apps import make_app, no_hardening, plain_app, request_of, send

pytestmark = pytest.mark.usefixtures("isolated")


@pytest.fixture
def channel(redis_url):
    with Connection(redis_url) as connection:
        yield connection.default_channel


def nothing() -> None: ...


def test_a_redis_channel_names_the_list_of_a_queue_and_priority(channel) -> None:
    for priority, key in ((0, "shop"), (2, "shop"), (3, "shop\x06\x163"), (9, "shop\x06\x169")):
        assert channel._q_for_pri("shop", priority) == key
    assert channel._get_message_priority({"properties": {"priority": 7}}) == 7
    assert channel._get_message_priority({"properties": {}}) == 0
    assert channel.sep == "\x06\x16"


def test_a_redis_channel_finds_the_queues_of_an_exchange_and_key(channel) -> None:
    events = Exchange("events", type="topic")
    for name, key in (("all", "order.#"), ("new", "order.new")):
        Queue(name, events, routing_key=key)(channel).declare()

    assert set(channel._lookup("events", "order.new")) == {"all", "new"}
    assert channel._lookup("", "shop") == ["shop"]


def test_a_message_of_a_virtual_transport_keeps_what_lay_in_its_list(redis_url) -> None:
    app = Celery("raw", broker=redis_url, set_as_current=False)
    app.send_task("t", task_id="one", countdown=60, queue="shop", priority=3)
    with app.connection() as connection:
        bound: Any = Queue("shop")(connection.default_channel)
        message = bound.get(no_ack=True)

    assert message._raw["headers"]["id"] == "one"
    assert message._raw["properties"]["delivery_info"] is message.delivery_info
    assert set(message._raw) == {"body", "content-encoding", "content-type", "headers", "properties"}


def test_a_consumer_knows_the_tag_of_each_of_its_queues(rabbitmq_url) -> None:
    with Connection(rabbitmq_url) as connection:
        got: list[Any] = []
        queues = [Queue("tagged-a", auto_delete=True), Queue("tagged-b", auto_delete=True)]
        with connection.Consumer(queues, on_message=got.append) as consumer:
            connection.Producer().publish({}, routing_key="tagged-b")
            while not got:
                connection.drain_events(timeout=5)
            tags = dict(cast("Any", consumer)._active_tags)

    assert set(tags) == {"tagged-a", "tagged-b"}
    assert got[0].delivery_info["consumer_tag"] == tags["tagged-b"]
    assert got[0].delivery_info["redelivered"] is False
    assert not hasattr(got[0], "_raw")


def test_the_strategy_asks_the_request_for_its_time_and_the_task_reads_the_headers() -> None:
    source = inspect.getsource(strategy.default)
    assert "if req.eta:" in source
    assert "revoked_tasks = consumer.controller.state.revoked" in source
    assert isinstance(vars(Request)["eta"], property)

    with no_hardening():
        app: Any = plain_app()
        t = app.task(name="t", shared=False)(nothing)
        app.finalize()
    request = request_of(app, send(t, countdown=60))
    assert request.eta is not None
    assert request.request_dict["eta"] == request.message.headers["eta"]


def test_a_revoke_writes_the_result_and_tells_the_chord() -> None:
    app = make_app()
    parameters = inspect.signature(app.backend.mark_as_revoked).parameters

    assert list(parameters)[:4] == ["task_id", "reason", "request", "store_result"]
