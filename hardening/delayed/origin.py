"""Where a message came from, so that it can go back there and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Origin", "origin_of"]

LIST_KEY = "list_key"
"""In a message's delivery_info: its list in Redis, where our transport has taken it from there."""

_SEPARATOR = "\x06\x16"


@dataclass(frozen=True, slots=True)
class Origin:
    """The one queue of a message, and its list where the broker is Redis, without the global key prefix."""

    queue: str
    list_key: str = ""


def origin_of(message: Any, consumer: Any) -> Origin | None:
    """None: it cannot be told, or its queue is a broadcast's, or ends with the worker.

    Not by its exchange and routing key alone: these may lead to several queues, each with its own copy.
    """
    lasting = {
        queue.name for queue in consumer.task_consumer.queues if not (queue.auto_delete or queue.exclusive)
    }
    found = _of_redis(message, lasting) if _is_virtual(message) else _of_amqp(message, consumer)
    return found if found is not None and found.queue in lasting else None


def _is_virtual(message: Any) -> bool:
    return hasattr(message, "_raw")


def _of_amqp(message: Any, consumer: Any) -> Origin | None:
    tag = (message.delivery_info or {}).get("consumer_tag")
    for name, known in consumer.task_consumer._active_tags.items():
        if tag is not None and known == tag:
            return Origin(name)
    return None


def _of_redis(message: Any, lasting: Iterable[str]) -> Origin | None:
    channel, info = message.channel, message.delivery_info or {}
    if key := info.get(LIST_KEY):
        return Origin(str(key).partition(getattr(channel, "sep", _SEPARATOR))[0], str(key))
    fanout = getattr(channel, "_fanout_queues", ())
    found = {
        name
        for name in channel._lookup(info.get("exchange"), info.get("routing_key"))
        if name in lasting and name not in fanout
    }
    if len(found) != 1:
        return None
    [queue] = found
    return Origin(queue, channel._q_for_pri(queue, channel._get_message_priority(message._raw)))
