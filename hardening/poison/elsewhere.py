"""The last try of a suspect on another queue: the same message, moved there once.

Sent with a confirmation before the old one is acknowledged. Dying between the two leaves both: they are
copies of one message, one of them waits while the other runs (see `twins`), and the case counts both.
"""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery
from kombu import Producer

from hardening.capture import delivery_of
from hardening.core.broker import confirming_connection
from hardening.core.identity import MOVED_HEADER, SUSPECT_HEADER, TWIN_HEADER
from hardening.history import class_path
from hardening.twins.work import Work

__all__ = ["move"]

logger = logging.getLogger("hardening")

_CONFIRM_SECONDS = 5.0
_PERSISTENT = 2
_CARRIED = ("priority", "correlation_id", "reply_to", "message_id", "timestamp", "type", "app_id")
_LEFT_BEHIND = ("compression", "x-delivery-count", "x-acquired-count")
_LEFT_BEHIND_FAMILIES = ("x-death", "x-first-death", "x-last-death")


def move(app: Celery, message: Any, queue: str) -> bool:
    """Put a message into another queue; the caller acknowledges it then. False: it stays where it is."""
    work = Work.of(message)
    task_id = work.task_id
    delivery = delivery_of(message)
    headers = {
        name: value
        for name, value in delivery.headers.items()
        if name not in _LEFT_BEHIND and not name.startswith(_LEFT_BEHIND_FAMILIES)
    }
    headers |= {MOVED_HEADER: queue, SUSPECT_HEADER: True, TWIN_HEADER: work.publish or True}
    properties = {name: value for name in _CARRIED if (value := delivery.properties.get(name)) is not None}
    try:
        with confirming_connection(app) as connection, connection.channel() as channel:
            Producer(channel, auto_declare=False).publish(
                delivery.body,
                content_type=delivery.content_type or "application/json",
                content_encoding=delivery.content_encoding or "utf-8",
                headers=headers,
                exchange="",
                routing_key=queue,
                mandatory=True,
                delivery_mode=_PERSISTENT,
                confirm_timeout=_CONFIRM_SECONDS,
                **properties,
            )
    # Its queue may not be there, or the broker may not be: it has its last try here then.
    except Exception as exc:
        logger.error(
            "task %s[%s] cannot have its last try on the queue %s, and has it here: %s",
            message.headers.get("task"),
            task_id,
            queue,
            class_path(type(exc)),  # Its text may show the message.
            extra={"task_id": task_id, "queue": queue},
        )
        return False
    logger.warning(
        "task %s[%s] has its last try on the queue %s", message.headers.get("task"), task_id, queue
    )
    return True
