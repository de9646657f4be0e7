"""Durable writes to the broker that do not depend on a task, a route or the result backend."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from celery import Celery
from django.conf import settings
from kombu import Connection, Exchange, Producer, Queue

from .letter import DeadLetter, dump_letter, load_letter

__all__ = [
    "DEAD_LETTER_QUEUE",
    "confirming_connection",
    "drain_letters",
    "parking_queue",
    "publish_letter",
    "publish_raw",
]

DEAD_LETTER_QUEUE = "celery_hardening.dead_letters"
_CONNECT_TIMEOUT_SECONDS = 3
_RETRY_POLICY = {"max_retries": 2, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.5}
_PERSISTENT = 2


@contextmanager
def confirming_connection(app: Celery) -> Iterator[Connection]:
    """A broker connection of its own: on AMQP each publish returns only when the broker confirmed it.

    Connecting is bounded: about 3 s for each try.
    """
    connection = app.connection(
        app.conf.broker_write_url or app.conf.broker_url,
        connect_timeout=_CONNECT_TIMEOUT_SECONDS,
        transport_options={"confirm_publish": True},
    )
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


def parking_queue() -> str:
    """The queue that keeps letters while their store is down: HARDENING["DEAD_LETTER_QUEUE"] or the default.

    Who parks and who takes in must name the same one.
    """
    configured = getattr(settings, "HARDENING", None)
    name = configured.get("DEAD_LETTER_QUEUE") if isinstance(configured, Mapping) else None
    return name if isinstance(name, str) and name else DEAD_LETTER_QUEUE


def letter_queue(name: str = DEAD_LETTER_QUEUE) -> Queue:
    """The durable queue for letters whose store is down."""
    return Queue(name, Exchange(""), routing_key=name, durable=True, auto_delete=False)


def publish_letter(app: Celery, letter: DeadLetter, *, queue: str = DEAD_LETTER_QUEUE) -> None:
    """Keep a letter on the broker. Returns when the broker has it; raises otherwise."""
    with confirming_connection(app) as connection:
        publish_raw(
            connection,
            body=dump_letter(letter),
            content_type="application/json",
            content_encoding="utf-8",
            headers={"letter": letter.delivery_key},
            routing_key=queue,
            declare=(letter_queue(queue),),
        )


def drain_letters(
    app: Celery,
    store: Callable[[DeadLetter], None],
    *,
    reject: Callable[[bytes, Exception], None],
    limit: int,
    queue: str = DEAD_LETTER_QUEUE,
) -> int:
    """Hand up to `limit` letters from the broker to `store`, oldest first; returns how many.

    A letter leaves the broker only after `store` returned. When `store` raises, the letter and all
    behind it stay, in order, and the error is raised here. What is no letter goes to `reject`.
    """
    done = 0
    with confirming_connection(app) as connection, connection.channel() as channel:
        bound = letter_queue(queue)(channel)
        bound.declare()
        while done < limit:
            message: Any = bound.get(no_ack=False)
            if message is None:
                break
            raw = message.body if isinstance(message.body, bytes) else str(message.body).encode()
            try:
                letter = load_letter(raw)
            except (ValueError, json.JSONDecodeError) as exc:
                reject(raw, exc)
            else:
                # A failing store ends the block: closing the channel gives the message back, first in line.
                store(letter)
            message.ack()
            done += 1
    return done


def _ensure(*, max_retries: int) -> dict[str, Any]:
    return {"max_retries": max_retries, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.5}
