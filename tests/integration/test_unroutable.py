"""On RabbitMQ a task for which there is no queue is an error of its publisher, and nothing vanishes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from amqp.exceptions import ChannelError
from celery import Celery
from celery.signals import before_task_publish
from kombu import Exchange, Queue
from kombu.common import Broadcast

from hardening import harden
from hardening.unroutable import mandatory
from tests.helpers.hardened_apps import no_hardening

NO_ROUTE = 312


@pytest.fixture
def app(isolated: None, rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    # What one app of this process asks for holds for the process: not beyond this test.
    monkeypatch.setattr(before_task_publish, "receivers", list(before_task_publish.receivers))
    before_task_publish.disconnect(dispatch_uid="hardening.unroutable")
    with no_hardening():
        made = harden(Celery("routed", broker=rabbitmq_url, set_as_current=True))
        made.conf.task_queues = [Queue("celery", Exchange("celery")), Broadcast("all")]
        made.finalize()
        yield made
    made.close()


def publish(app: Any, **options: Any) -> str:
    """ "sent", or what the publisher is told."""
    try:
        app.send_task("nobody", retry=False, **options)
    except ChannelError as exc:
        return str(exc.reply_code)
    return "sent"


def test_a_routing_key_without_a_queue_is_told_to_the_publisher_and_the_next_task_is_sent(app: Any) -> None:
    assert publish(app) == "sent"
    for _ in range(3):
        assert publish(app, exchange="celery", routing_key="misspelt") == str(NO_ROUTE)
        assert publish(app) == "sent"
    assert publish(app, queue="made by its first publish") == "sent"


def test_an_exchange_that_does_not_exist_is_told_as_well(app: Any) -> None:
    assert publish(app, exchange="nowhere", routing_key="misspelt") == "404"


def test_a_broadcast_that_nobody_listens_to_is_no_error(app: Any) -> None:
    with app.connection_for_write() as connection:
        app.amqp.queues["all"].exchange(connection.default_channel).declare()

    assert publish(app, queue="all") == "sent"


def test_what_the_caller_says_of_it_stays(app: Any) -> None:
    properties = {"mandatory": False}

    mandatory(exchange="", properties=properties)

    assert properties == {"mandatory": False}
