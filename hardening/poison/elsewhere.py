"""The last try of a suspect on another queue: the same message, moved there once.

Sent with a confirmation before the old one is acknowledged. Dying between the two leaves both: they are
copies of one message, one of them waits while the other runs (see `twins`), and the case counts both.

A queue that nobody has ever declared is no place for it. RabbitMQ refuses such a message; Redis would keep it
in a list that no worker reads, so there the queue is looked up before. A name that is mistyped is said when a
worker starts, and by the checks where the project names its queues.
"""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery
from kombu import Connection, Producer

from hardening.capture import delivery_of
from hardening.core.broker import confirming_connection
from hardening.core.errors import HardeningError
from hardening.core.findings import Finding, Level
from hardening.core.identity import MOVED_HEADER, SUSPECT_HEADER, TWIN_HEADER
from hardening.effective import transport_of
from hardening.history import class_path
from hardening.twins.work import Work

from .terms import CODE, Poison, task_terms

__all__ = ["move", "nowhere_findings", "say_nowhere"]

logger = logging.getLogger("hardening")

_CONFIRM_SECONDS = 5.0
_PERSISTENT = 2
_CARRIED = ("priority", "correlation_id", "reply_to", "message_id", "timestamp", "type", "app_id")
_LEFT_BEHIND = ("compression", "x-delivery-count", "x-acquired-count")
_LEFT_BEHIND_FAMILIES = ("x-death", "x-first-death", "x-last-death")


class NoSuchQueue(HardeningError):
    """No worker has ever declared a queue of this name on this broker."""


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
            if not _is_declared(app, connection, queue):
                raise NoSuchQueue(queue)
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


def nowhere_findings(app: Celery, terms: Poison) -> list[Finding]:
    """Queues of last tries that are not among those that the project names itself. Asks no broker."""
    return [_finding(name) for name in _undeclared(app, terms)] if app.conf.task_queues else []


def say_nowhere(app: Celery, terms: Poison) -> None:
    """Log which queues of last tries nobody has declared on this Redis. If it does not answer: none."""
    names = _undeclared(app, terms) if transport_of(app) == "redis" else []
    if not names:
        return
    try:
        with confirming_connection(app) as connection:
            nowhere = [name for name in names if not _is_declared(app, connection, name)]
    # A broker that does not answer is not judged, and a worker's start does not end for it.
    except Exception as exc:
        logger.info("the queues of last tries could not be looked up: %s", class_path(type(exc)))
        return
    for finding in map(_finding, nowhere):
        logger.warning("%s: %s. %s", finding.code, finding.what, finding.remedy)


def _undeclared(app: Celery, project: Poison) -> list[str]:
    terms = [project, *(task_terms(task, project)[0] for task in app.tasks.values())]
    queues: Any = app.amqp.queues
    return sorted({each.last_try_queue for each in terms if each.last_try_queue} - set(queues))


def _is_declared(app: Celery, connection: Connection, queue: str) -> bool:
    """Whether the app has the queue, or anybody has declared it on this Redis. Others refuse it."""
    if connection.transport.driver_type != "redis" or queue in app.amqp.queues:
        return True
    with connection.channel() as opened:
        channel: Any = opened  # One of Redis.
        # kombu's name for the exchange that Celery gives to a queue of `-Q`: the queue's own.
        return bool(channel.get_table(queue))


def _finding(name: str) -> Finding:
    return Finding(
        code=CODE,
        level=Level.WARNING,
        what=f"no worker reads the queue {name!r}, as far as can be seen: a last try that is meant for it "
        "takes place where the others did",
        where='settings.HARDENING["POISON"]["LAST_TRY_QUEUE"], or poison_queue of a task',
        remedy="Correct the name, or name the queue in task_queues. One that a worker consumes by -Q alone "
        "is known once that worker has started.",
    )
