"""A Redis that falls silent does not keep the main loop: neither who asks beside the consumer, nor events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from celery.worker.consumer.consumer import Consumer
from kombu.exceptions import OperationalError

from hardening.core import broker
from hardening.leases import consumer
from hardening.leases.terms import Lease
from hardening.testing.servers import RedisServer
from hardening.testing.tcp_proxy import TcpProxy, tcp_proxy
from tests.helpers.hardened_apps import hardened_app
from tests.helpers.mishaps import within

pytestmark = pytest.mark.usefixtures("isolated", "recording")


@pytest.fixture
def way(redis_server: RedisServer) -> Iterator[TcpProxy]:
    parts = urlsplit(redis_server.url_for(0))
    with tcp_proxy(str(parts.hostname), int(parts.port or 6379)) as made:
        yield made


@pytest.fixture
def app(way: TcpProxy) -> Any:
    made = hardened_app()
    made.conf.broker_url = f"redis://127.0.0.1:{way.port}/0"
    return made


def test_who_asks_beside_the_consumer_has_an_error_soon(app, way, monkeypatch) -> None:
    monkeypatch.setattr(broker, "_ANSWER_SECONDS", 0.3)
    with broker.confirming_connection(app) as connection, connection.channel() as opened:
        channel: Any = opened
        channel.queue_declare(queue="q")
        way.swallows = True
        with within(2), pytest.raises(connection.connection_errors):
            channel.queue_declare(queue="q")
    with within(3), pytest.raises(OperationalError), broker.confirming_connection(app):
        pass


def test_a_heartbeat_of_a_worker_that_leases_has_an_error_soon(app, way, monkeypatch) -> None:
    monkeypatch.setattr(consumer, "_EVENT_SECONDS", 0.3)
    kind = consumer.hardened_consumer(Consumer, lease=Lease(), holder="a worker", leased=True)
    made = kind.__new__(kind)
    made.app = app
    connection = made.connection_for_write()
    with app.events.Dispatcher(connection, hostname="a worker", buffer_while_offline=False) as events:
        events.send("worker-heartbeat")
        way.swallows = True
        with within(3), pytest.raises(connection.connection_errors):
            events.send("worker-heartbeat")
    connection.release()
