"""The rules for kombu and amqp, on errors that they really raised; a real RabbitMQ refuses."""

from __future__ import annotations

import ssl

import pytest
from kombu import Connection, Exchange, Producer, Queue
from kombu.serialization import dumps, loads

from hardening.testing.ports import LOOPBACK, free_port
from tests.helpers.failing_http import FailingHttp, self_signed
from tests.helpers.verdicts import judged, said

ONCE = {"max_retries": 0, "interval_start": 0}


def publish(url, *, retry=False, **options):
    with Connection(url, transport_options={"confirm_publish": True}) as connection:
        producer = Producer(connection.channel())
        producer.publish(b"text", retry=retry, retry_policy=ONCE, timeout=10, **options)


@pytest.fixture
def connection(rabbitmq_server):
    """To the virtual host that every test shares: making one takes RabbitMQ a second."""
    with Connection(rabbitmq_server.url) as connection:
        yield connection


def declare(connection, name, **options):
    """A queue that goes with its connection, or when it has not been used for a minute."""
    queue = Queue(name, expires=60, channel=connection.channel(), **options)
    queue.declare()
    return queue


def test_no_connection_is_transient():
    for scheme in ("amqp", "redis"):
        with Connection(f"{scheme}://{LOOPBACK}:{free_port()}//") as connection:
            verdict = judged(connection.ensure_connection, **ONCE)
        assert said(verdict) == ("transient", "broker.connection", "")


def test_a_wrong_password_is_transient(rabbitmq_server, redis_url):
    with Connection(rabbitmq_server.url.replace("guest:guest", "guest:wrong")) as connection:
        assert said(judged(connection.connect)) == ("transient", "broker.reply", "403")
    with Connection(redis_url.replace("redis://", "redis://nobody:wrong@")) as connection:
        verdict = judged(connection.ensure_connection, **ONCE)
    assert said(verdict) == ("transient", "broker.authentication", "")


def test_what_the_user_has_no_right_to_is_transient(rabbitmq_server, rabbitmq_url):
    vhost = rabbitmq_url.rpartition("/")[2]
    rabbitmq_server.rabbitmqctl("add_user", "reader", "right")
    try:
        reader = rabbitmq_url.replace("guest:guest", "reader:right")
        with Connection(reader) as connection:
            assert said(judged(connection.connect)) == ("transient", "broker.resource", "530")
        rabbitmq_server.rabbitmqctl("set_permissions", "-p", vhost, "reader", "^$", "^$", ".*")
        with Connection(reader) as connection:
            queue = Queue("orders", channel=connection.channel())
            assert said(judged(queue.declare)) == ("transient", "broker.reply", "403")
    finally:
        rabbitmq_server.rabbitmqctl("delete_user", "reader")


def test_an_untrusted_certificate_is_permanent(tmp_path):
    checked = {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": LOOPBACK}
    with FailingHttp(self_signed(tmp_path / "server.pem")) as untrusted:
        for url, tls in (
            (f"amqp://{LOOPBACK}:{untrusted.port}//", checked),
            (f"rediss://{LOOPBACK}:{untrusted.port}/0?ssl_cert_reqs=required", False),
        ):
            with Connection(url, ssl=tls) as connection:
                verdict = judged(connection.ensure_connection, **ONCE)
            assert said(verdict) == ("permanent", "broker.certificate", "CERTIFICATE_VERIFY_FAILED")


def test_a_virtual_host_that_is_missing_is_transient(rabbitmq_server):
    with Connection(rabbitmq_server.url + "nowhere") as connection:
        assert said(judged(connection.connect)) == ("transient", "broker.resource", "530")


def test_what_the_broker_does_not_allow_is_permanent(connection):
    queue = declare(connection, "consumed")
    queue.consume(consumer_tag="mine")
    assert said(judged(queue.consume, consumer_tag="mine")) == ("permanent", "broker.reply", "530")


def test_a_virtual_host_in_full_use_and_a_connection_closed_by_the_broker_are_transient(
    rabbitmq_server, rabbitmq_url
):
    vhost = rabbitmq_url.rpartition("/")[2]
    with Connection(rabbitmq_url) as connection:
        connection.connect()
        rabbitmq_server.rabbitmqctl("close_all_connections", "-p", vhost, "maintenance")
        closed = judged(connection.drain_events, timeout=10)
    rabbitmq_server.rabbitmqctl("set_vhost_limits", "-p", vhost, '{"max-connections": 0}')
    with Connection(rabbitmq_url) as connection:
        limited = judged(connection.connect)
    assert said(closed) == ("transient", "broker.connection", "320")
    assert said(limited) == ("transient", "broker.resource", "530")


def test_what_is_missing_or_otherwise_declared_is_permanent(connection, rabbitmq_server):
    missing = Queue("missing", channel=connection.channel())
    assert said(judged(missing.queue_declare, passive=True)) == ("permanent", "broker.reply", "404")
    declare(connection, "kept")
    other = Queue("kept", expires=30, channel=connection.channel())
    assert said(judged(other.declare)) == ("permanent", "broker.reply", "406")
    verdict = judged(publish, rabbitmq_server.url, exchange=Exchange("missing", "direct"))
    assert said(verdict) == ("permanent", "broker.reply", "404")


def test_a_queue_that_another_connection_has_for_itself_is_transient(connection, rabbitmq_server):
    declare(connection, "mine", exclusive=True)
    with Connection(rabbitmq_server.url) as other:
        queue = Queue("mine", channel=other.channel())
        verdict = judged(queue.queue_declare, passive=True)
    assert said(verdict) == ("transient", "broker.connection", "405")


def test_a_message_that_a_full_queue_rejects_is_transient(connection, rabbitmq_server):
    declare(connection, "full", max_length=0, queue_arguments={"x-overflow": "reject-publish"})
    for retry in (False, True):
        verdict = judged(publish, rabbitmq_server.url, retry=retry, routing_key="full")
        assert said(verdict)[0] == "transient"


def test_a_pool_in_full_use_is_transient(connection):
    pool = connection.Pool(limit=1)
    with pool.acquire():
        assert said(judged(pool.acquire)) == ("transient", "broker.limit", "")
    pool.force_close_all()


def test_content_that_cannot_be_encoded_or_read_is_permanent():
    for call in (
        lambda: dumps(object(), serializer="json"),
        lambda: loads(b"{", "application/json", "utf-8"),
        lambda: loads(b"", "application/x-python-serialize", "binary", accept={"application/json"}),
        lambda: dumps({}, serializer="nonsense"),
    ):
        assert said(judged(call)) == ("permanent", "broker.content", "")


def test_kombu_used_in_a_way_that_cannot_work_is_permanent(connection):
    assert said(judged(Queue("unbound").declare)) == ("permanent", "broker.usage", "")
    with connection.SimpleQueue("greetings") as queue:
        queue.put("hello")
        message = queue.get(timeout=5)
        message.ack()
        assert said(judged(message.ack)) == ("permanent", "broker.usage", "")
