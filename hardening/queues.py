"""Queues of RabbitMQ that keep what they give up: `durable_queue`, and where it goes.

The argument. A queue without a dead-letter exchange drops what was rejected, has expired, or has reached its
delivery limit; nobody hears of it. With one, the message moves in the broker, to a queue that every hardened
worker takes in from: kept as a letter first, acknowledged then. Quorum queues do the move "at least once":
the message leaves its queue when the other one has confirmed it. Classic queues move it without a confirm,
so that the death of the broker's node in that moment loses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kombu import Exchange, Queue

__all__ = ["DEAD_LETTERED_QUEUE", "DEAD_LETTER_EXCHANGE", "durable_queue"]

DEAD_LETTER_EXCHANGE = "celery_hardening.dlx"
"""Where queues dead-letter to: a durable fan-out exchange, declared by every hardened worker."""

DEAD_LETTERED_QUEUE = "celery_hardening.dead_lettered"
"""What is bound to it: a durable queue that hardened workers empty."""


def durable_queue(
    name: str,
    *,
    quorum: bool = True,
    delivery_limit: int = 20,
    exchange: Exchange | None = None,
    routing_key: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Queue:
    """A queue for `task_queues` that loses nothing of what it gives up.

    A quorum queue (RabbitMQ 3.10 and later) by default. `delivery_limit`: how often the broker gives a
    message to somebody else after its first delivery, planned restarts included; well above
    HARDENING["POISON"]["LIMIT"]. Without `exchange` it has one of its own name, of type topic for a quorum
    queue: with Celery's native delay only that keeps what is due later out of the workers. `arguments` are
    added, and overrule. Raises ValueError for a delivery limit that is no positive number.

    The arguments of a queue that exists cannot be changed; see docs/how-to/rabbitmq-queues.md.
    """
    if quorum and (isinstance(delivery_limit, bool) or not delivery_limit > 0):
        raise ValueError(f"a delivery limit is a positive number, not {delivery_limit!r}")
    queue_arguments: dict[str, Any] = {"x-dead-letter-exchange": DEAD_LETTER_EXCHANGE}
    if quorum:
        queue_arguments |= {
            "x-queue-type": "quorum",
            "x-delivery-limit": int(delivery_limit),
            # Only together: the broker confirms to itself that a dead message has arrived.
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }
    return Queue(
        name,
        exchange or Exchange(name, type="topic" if quorum else "direct", durable=True),
        routing_key=routing_key or name,
        durable=True,
        auto_delete=False,
        queue_arguments={**queue_arguments, **(arguments or {})},
    )
