"""What keeps a gevent or eventlet worker saturated: prefetch, connections, no wait for each message."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

from celery import bootsteps
from kombu.utils import functional

from .enforced import Enforced

__all__ = [
    "MAX_CONNECTIONS",
    "AcksAtOnce",
    "UnhurriedReads",
    "connections_row",
    "green_prefetch",
    "highest_concurrency",
    "wait_without_stopping",
]

logger = logging.getLogger("hardening")

MAX_CONNECTIONS = "broker_transport_options.max_connections"

CONNECTION_RESERVE = 20
"""Connections beyond one for each greenlet: waiting for messages, the sweep, and a pool that is grown."""

CONNECTIONS_WHEN_UNSET = 100
"""What redis-py 8 takes 0 and None for; older ones take them for no limit."""

READS_PER_HEARTBEAT = 4


def green_prefetch(transport: str) -> int:
    """The smallest prefetch multiplier with which a green pool stays busy; `make bench` shows its rate.

    Tasks a second with 50 greenlets, 100 ms tasks, late acks and the steps below, with 1 and with 2:
    RabbitMQ 258 and 280 (runs differ by a tenth), Redis 27 and 179; with 4 neither has more.

    RabbitMQ delivers the next message with each acknowledgement, and needs no more than 1. More would do
    harm: at a message beyond its greenlets the worker waits for a free one without reading, takes the
    broker for dead after two heartbeats, and runs again what it had not acknowledged. Redis is polled, and
    the worker sleeps for two seconds whenever all that it may hold is running. With 2 it never comes to
    that: it takes one message more and waits for a free greenlet.
    """
    return 1 if transport == "amqp" else 2


def highest_concurrency(worker: Any) -> int:
    """How many greenlets a worker may come to have, as known at worker_init."""
    asked = worker.concurrency
    given = [asked] if isinstance(asked, int) else [os.cpu_count() or 1]  # "auto" is resolved later.
    scale = (getattr(worker, "options", None) or {}).get("autoscale")
    if scale:
        ends = scale.split(",") if isinstance(scale, str) else scale
        given += [int(end) for end in ends if end]
    return max(given)


def connections_row(concurrency: int) -> Enforced:
    """Each greenlet acknowledges on a connection of its own; kombu's limit is 10.

    A greenlet that finds none logs the error and goes on: its message is never acknowledged, runs again
    later, and takes its prefetch credit away from the worker until then.
    """
    needed = concurrency + CONNECTION_RESERVE
    return Enforced(
        setting=MAX_CONNECTIONS,
        value=needed,
        why=f"{concurrency} greenlets acknowledge on connections of their own; without one a message is "
        "never acknowledged and runs again.",
        code="CH012",
        accepts=lambda value: isinstance(value or 0, int) and (value or CONNECTIONS_WHEN_UNSET) >= needed,
        transport="redis",
    )


def wait_without_stopping() -> None:
    """Let greenlets run while a worker waits to reach its broker again.

    Celery imports kombu before it patches `time`, on its way to the patch itself: kombu's pause between two
    tries, up to half a minute, is the unpatched one, and stops every greenlet of the process.
    """
    kombus: Any = functional
    if kombus.sleep is not time.sleep:
        kombus.sleep = time.sleep


class UnhurriedReads(bootsteps.StartStopStep):
    """Reads the event connection of a green worker as often as heartbeats need it, not after each message.

    Celery 5.7's synchronous loop waits up to 100 ms for a frame on that connection after every message,
    which leaves ten messages a second over RabbitMQ. Between two reads this says at once that there is
    nothing. Other brokers have no heartbeats, and Celery 5.6 never reads there.
    """

    requires = ("celery.worker.consumer.events:Events",)

    def include_if(self, consumer: Any) -> bool:
        """Only where the consumer runs the synchronous loop."""
        return bool(getattr(consumer.pool, "is_green", False))

    def start(self, consumer: Any) -> None:
        """Called again for each connection: the dispatcher is a new one then."""
        connection = getattr(consumer.event_dispatcher, "connection", None)
        if connection is None or not connection.supports_heartbeats:
            return
        heartbeat = connection.get_heartbeat_interval()
        if heartbeat:
            connection.drain_events = unhurried(connection.drain_events, heartbeat / READS_PER_HEARTBEAT)


def unhurried(
    read: Callable[..., Any], every_seconds: float, clock: Callable[[], float] = time.monotonic
) -> Callable[..., Any]:
    """`read`, at most once in so many seconds; in between it times out without waiting."""
    due = clock()

    def drain_events(**options: Any) -> Any:
        nonlocal due
        now = clock()
        if now < due:
            raise TimeoutError
        due = now + every_seconds
        return read(**options)

    return drain_events


class AcksAtOnce(bootsteps.StartStopStep):
    """Celery 5.6: a green worker acknowledges when a task ends, as Celery 5.7 does, not between two reads.

    A read lasts up to two seconds, and as long as that with a prefetch multiplier of 1, for nothing is
    delivered before an acknowledgement.
    """

    requires = ("celery.worker.consumer.events:Events",)

    def include_if(self, consumer: Any) -> bool:
        """Not where Celery has its own way."""
        return bool(getattr(consumer.pool, "is_green", False)) and not hasattr(consumer, "call_soon_ack")

    def start(self, consumer: Any) -> None:
        """Before the consumer's loop makes the receiver of messages, which keeps `call_soon`."""
        if "call_soon" not in vars(consumer):
            consumer.call_soon = acks_at_once(consumer.call_soon)


def acks_at_once(later: Callable[..., Any]) -> Callable[..., Any]:
    """`later`, but for acknowledgements and rejections; remote control must stay in the consumer's loop."""

    def call_soon(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if getattr(function, "__name__", "") not in ("ack_log_error", "reject_log_error"):
            return later(function, *args, **options)
        try:
            return function(*args, **options)
        # As in Celery's own loop: a lost connection shows itself at the next read.
        except Exception:
            logger.exception("a message could not be acknowledged")
            return None

    return call_soon
