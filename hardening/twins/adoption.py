"""Adoption: a running request takes over the redelivery of its message.

RabbitMQ gives a message back when the channel dies, while its task runs on. The redelivery that comes to the
same worker is the one that can still be acknowledged: the request answers for it from now on. Its work is
neither run again nor, if the worker dies, forgotten.
"""

from __future__ import annotations

from typing import Any

from .here import is_severed
from .work import Work

__all__ = ["adopt", "can_adopt"]


def can_adopt(request: Any, work: Work, message: Any) -> bool:
    """Whether the message is the request's own, come back: its first one can no longer be acknowledged.

    Two live messages of one work, as a replay that was sent twice, are another case: each needs its answer.
    """
    # A request that does not run yet may never: Celery drops those with the connection.
    runs = bool(request.time_start) and is_severed(request.message)
    return runs and Work.of(request.message) == work and not is_severed(message)


def adopt(request: Any, message: Any, consumer: Any) -> None:
    """Acknowledging or rejecting the request acknowledges or rejects this message from now on."""
    # Celery 5.7's way on gevent; 5.6 has one way.
    soon = getattr(consumer, "call_soon_ack", consumer.call_soon)

    def on_ack(logger: Any, errors: Any) -> None:
        soon(message.ack_log_error, logger, errors)

    def on_reject(logger: Any, errors: Any, requeue: bool) -> None:
        soon(message.reject_log_error, logger, errors, requeue)

    request._message = message
    request._on_ack = on_ack
    request._on_reject = on_reject
    # Celery takes less after a lost connection, for each task that runs: here one of those is counted.
    if consumer.qos is not None and consumer.qos.value < consumer.max_prefetch_count:
        consumer.qos.increment_eventually(consumer.prefetch_multiplier)
