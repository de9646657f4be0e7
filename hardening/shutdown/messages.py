"""Messages of a worker that stops: no more of them, and how one goes back to where it was in its queue."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from kombu.transport import virtual

__all__ = ["gave_back", "stop_fetching"]

logger = logging.getLogger("hardening")


def stop_fetching(consumer: Any, refuse: Callable[[Any], None]) -> None:
    """Ask the broker for no more messages. What is on its way already goes to `refuse`.

    Without waiting for the broker's answer: on gevent another greenlet reads that connection, and a broker
    that is silent would hold up the worker's loop.
    """
    tasks = consumer.task_consumer
    tasks.on_message = refuse
    if consumer.connection.transport.driver_type != "amqp":
        tasks.cancel()
        return
    for tag in list(tasks._active_tags.values()):
        tasks.channel.basic_cancel(tag, nowait=True)
    tasks._active_tags.clear()  # Celery cancels again when it ends.


def gave_back(message: Any, *, untouched: bool = False) -> bool:
    """Give a message back to the broker, next to be delivered where it can be. False: the broker is not to
    be reached, or refuses; it gives the message to others by itself when this worker is gone."""
    if message.acknowledged:
        return True
    try:
        deliveries: Any = getattr(message.channel, "qos", None)
        holdings = getattr(message.channel, "holdings", None)
        if holdings is not None:
            _to_the_front(message, deliveries, partial(holdings.give_back, untouched=untouched))
            return message.delivery_tag not in holdings
        if _is_stock_redis(deliveries):
            _to_the_front(message, deliveries, deliveries.restore_by_tag)
        else:
            message.reject(requeue=True)
    # Redis may refuse what is given back, as any write, in every way that it has.
    except Exception as exc:
        logger.warning("a message cannot go back to the broker now: %s", type(exc).__qualname__)
        return False
    return True


def _is_stock_redis(deliveries: Any) -> bool:
    kind = type(deliveries)
    return (kind.__module__, kind.__qualname__) == ("kombu.transport.redis", "QoS")


def _to_the_front(message: Any, deliveries: Any, give_back: Callable[[str], Any]) -> None:
    """kombu's own `reject` puts a message behind all that wait."""
    tag = message.delivery_tag
    give_back(tag)
    virtual.QoS.ack(deliveries, tag)  # It holds no prefetch credit any more, and is not restored again.
    message._state = "REQUEUED"
