"""Keeps RabbitMQ from dropping a task that no queue takes: its publisher gets an error instead.

RabbitMQ accepts and confirms a message for which its exchange has no queue, and drops it. That happens with a
routing key that is wrong, and with a queue that was deleted while workers still retry into it. A message that
is published as mandatory comes back, and py-amqp raises ChannelError (312, NO_ROUTE) out of the publish: the
caller of apply_async knows, and a worker keeps the message whose retry it was. Confirms, which are enforced,
make the return arrive within the publish.

Which way it fails: a fan-out that this app knows may have no listener, and is published as before.
"""

from __future__ import annotations

from typing import Any

from celery import current_app
from celery.signals import before_task_publish

__all__ = ["mandatory", "refuse_unroutable"]


def refuse_unroutable() -> None:
    """From now on this process publishes its tasks as mandatory. For one whose app is on RabbitMQ."""
    before_task_publish.connect(mandatory, weak=False, dispatch_uid="hardening.unroutable")


def mandatory(exchange: object = None, properties: object = None, **_: Any) -> None:
    """Receives before_task_publish. What the caller said of it stays."""
    if isinstance(properties, dict) and not _is_fanout(exchange):
        properties.setdefault("mandatory", True)


def _is_fanout(exchange: object) -> bool:
    if not exchange:
        return False  # The default exchange, by which Celery reaches a queue under its name.
    queues: Any = current_app.amqp.queues
    name = getattr(exchange, "name", exchange)
    return getattr(exchange, "type", None) == "fanout" or any(
        queue.exchange is not None and queue.exchange.name == name and queue.exchange.type == "fanout"
        for queue in queues.values()
    )
