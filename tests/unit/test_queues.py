"""Queues that keep what they give up, and the findings about those that do not."""

from __future__ import annotations

import math
from typing import Any

import pytest
from celery import Celery
from kombu import Exchange, Queue

from hardening.core.findings import Level
from hardening.queue_findings import queue_findings
from hardening.queues import DEAD_LETTER_EXCHANGE, durable_queue

QUORUM = {"x-queue-type": "quorum"}


def found(*queues: Queue, transport: str = "amqp", limit: float = 3, **conf: Any) -> list[tuple[str, str]]:
    app = Celery("queues", broker="amqp://x", set_as_current=False)
    app.conf.update(task_queues=queues or None, **conf)
    findings = queue_findings(app, transport, limit)
    assert {finding.level for finding in findings} <= {Level.WARNING}
    assert all("cannot be seen from here" in finding.remedy for finding in findings)
    return [(finding.code, finding.where.split(",")[0]) for finding in findings]


def test_a_durable_queue_has_no_findings_and_waits_for_native_delay() -> None:
    queue: Any = durable_queue("orders")

    assert (queue.exchange.type, queue.exchange.name, queue.routing_key) == ("topic", "orders", "orders")
    assert queue.queue_arguments["x-dead-letter-exchange"] == DEAD_LETTER_EXCHANGE
    assert queue.queue_arguments["x-delivery-limit"] == 20
    assert found(queue, durable_queue("plain", quorum=False)) == []


def test_what_a_project_asks_for_overrules() -> None:
    queue = durable_queue(
        "orders",
        quorum=False,
        exchange=Exchange("shop", type="topic"),
        routing_key="order.#",
        arguments={"x-dead-letter-exchange": "own", "x-max-priority": 3},
    )

    assert (queue.exchange.name, queue.routing_key) == ("shop", "order.#")
    assert queue.queue_arguments == {"x-dead-letter-exchange": "own", "x-max-priority": 3}


@pytest.mark.parametrize("limit", [0, -1, True])
def test_a_delivery_limit_that_is_none_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        durable_queue("orders", delivery_limit=limit)


def test_a_quorum_queue_without_a_dead_letter_exchange_is_found() -> None:
    assert found(Queue("orders", queue_arguments=QUORUM)) == [("CH024", "queue orders")]
    assert found(task_default_queue_type="quorum", task_default_queue="tasks") == [("CH024", "queue tasks")]
    assert found(Queue("classic")) == []


@pytest.mark.parametrize(
    ("limit", "poison", "bad"), [(3, 3, True), (2, 3, True), (4, 3, False), (4, math.inf, False)]
)
def test_a_delivery_limit_must_be_above_that_of_poison(limit: int, poison: float, bad: bool) -> None:
    assert bool(found(durable_queue("orders", delivery_limit=limit), limit=poison)) is bad


def test_other_brokers_have_no_such_queues() -> None:
    assert found(Queue("orders", queue_arguments=QUORUM), transport="redis") == []
