"""Durable writes to the broker that do not depend on a task, a route or the result backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from celery import Celery
from kombu import Connection, Producer, Queue

__all__ = ["batching_connection", "confirming_connection", "lasting_connection", "publish_raw"]

_CONNECT_TIMEOUT_SECONDS = 3
_ANSWER_SECONDS = 3.0
_RETRY_POLICY = {"max_retries": 2, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.5}
_PERSISTENT = 2


@contextmanager
def confirming_connection(app: Celery) -> Iterator[Connection]:
    """A broker connection of its own: on AMQP each publish returns only when the broker confirmed it.

    Connecting is bounded: about 3 s for each try; and so is waiting for an answer of Redis.
    """
    with _opened(_connection(app, _ANSWER_SECONDS, confirm_publish=True)) as connection:
        yield connection


@contextmanager
def batching_connection(app: Celery, answer_seconds: float) -> Iterator[Connection]:
    """A broker connection of its own for who publishes in batches and looks after their confirms itself.

    Connecting is bounded as above, and so is waiting for an answer of Redis.
    """
    with _opened(_connection(app, answer_seconds, confirm_publish=False)) as connection:
        yield connection


def lasting_connection(app: Celery, answer_seconds: float) -> Connection:
    """An open broker connection for who keeps it, and releases it: on AMQP each publish is confirmed.

    One try to connect; that, and each wait for an answer, takes `answer_seconds` at most for each address of
    the broker. It has no heartbeat: nobody would answer it.
    """
    connection = _connection(app, answer_seconds, confirm_publish=True)
    connection.heartbeat = 0
    connection.connect_timeout = answer_seconds
    if connection.get_transport_cls().driver_type == "amqp":
        bounds = {"read_timeout": answer_seconds, "write_timeout": answer_seconds}
        connection.transport_options = {**bounds, **(connection.transport_options or {})}
    elif connection.get_transport_cls().driver_type == "redis":
        given = connection.transport_options or {}
        connection.transport_options = {"socket_connect_timeout": answer_seconds, **given}
    try:
        connection.connect()
    except BaseException:
        connection.release()
        raise
    return connection


def _connection(app: Celery, answer_seconds: float, *, confirm_publish: bool) -> Connection:
    connection = app.connection(
        app.conf.broker_write_url or app.conf.broker_url,
        connect_timeout=_CONNECT_TIMEOUT_SECONDS,
        transport_options={"confirm_publish": confirm_publish},
    )
    if connection.get_transport_cls().driver_type == "redis":
        # kombu waits for ever for a Redis that is silent, and with it who asks: a worker's main loop.
        given = connection.transport_options or {}
        connection.transport_options = {"socket_timeout": answer_seconds, **given}
    return connection


@contextmanager
def _opened(connection: Connection) -> Iterator[Connection]:
    try:
        connection.ensure_connection(**_ensure(max_retries=1))
        yield connection
    finally:
        connection.release()


def publish_raw(
    connection: Connection,
    *,
    body: bytes | str,
    content_type: str | None,
    content_encoding: str | None,
    headers: Mapping[str, Any],
    exchange: str = "",
    routing_key: str,
    declare: tuple[Queue, ...] = (),
    **properties: Any,
) -> None:
    """Publish bytes exactly as given. Returns when the broker has them; raises otherwise."""
    with connection.channel() as channel:
        Producer(channel, auto_declare=False).publish(
            body,
            content_type=content_type or "application/json",
            content_encoding=content_encoding or "utf-8",
            headers=dict(headers),
            exchange=exchange,
            routing_key=routing_key,
            declare=list(declare),
            delivery_mode=_PERSISTENT,
            retry=True,
            retry_policy=_RETRY_POLICY,
            **properties,
        )


def _ensure(*, max_retries: int) -> dict[str, Any]:
    return {"max_retries": max_retries, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.5}
