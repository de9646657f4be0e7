"""Hands messages that are due to the broker, each with its confirmation.

A RabbitMQ that is short of memory takes one message, and from then on reads nothing from the connection until
it has memory again; then it takes what lies there, although nobody waits for the answer. A message that is
due might so be sent at every turn. Hence two messages to nobody go first: where these are not confirmed in
time, nothing else was sent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from celery import Celery
from kombu import Connection, Producer

from hardening.core.broker import confirming_connection
from hardening.history import class_path

from .entry import Delayed, Outgoing, load_message
from .saying import Seldom

__all__ = ["Publisher"]

logger = logging.getLogger("hardening")

_NOBODY = "celery_hardening.nobody"
_CONFIRM_SECONDS = 2.0
_MOST_SECONDS = 5.0
"""For one call: well below the claim of a store."""

_PERSISTENT = 2


class Publisher:
    """Publishes over AMQP, or into the lists of the Redis that is the broker."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._lists: Any = None
        self._complaint = Seldom(logger)

    def __call__(self, entries: Sequence[Delayed]) -> Sequence[str]:
        """Publish in order; returns the ids of what the broker has. Raises where it has nothing."""
        if all(entry.list_key for entry in entries):
            self._push(entries)
            return [entry.id for entry in entries]
        sent: list[str] = []
        deadline = time.monotonic() + _MOST_SECONDS
        with confirming_connection(self._app) as connection, _ended_soon(connection):
            channel: Any = connection.channel()
            for _ in range(2):
                _send(channel, b"", routing_key=_NOBODY)
            for entry in entries:
                if time.monotonic() > deadline:
                    break
                channel = channel or connection.channel()
                try:
                    _publish(channel, load_message(entry.message, queue=entry.queue))
                    sent.append(entry.id)
                except Exception as exc:
                    self._say(entry, exc)
                    if isinstance(exc, connection.connection_errors):
                        _cut_off(connection)
                        break
                    # Refused for its own sake, or that of its queue: the others have their turn.
                    _close(channel)
                    channel = None
        return sent

    def _push(self, entries: Sequence[Delayed]) -> None:
        if self._lists is None:
            from .lists import Lists  # Needs redis-py, which is there only with Redis.

            self._lists = Lists(self._app)
        self._lists.push(entries)

    def _say(self, entry: Delayed, exc: Exception) -> None:
        self._complaint.warn(
            "task %s[%s] is due, and the broker does not take it for its queue %s; it is tried again: %s",
            entry.task,
            entry.task_id,
            entry.queue,
            class_path(type(exc)),  # Its text may show the message.
        )


@contextmanager
def _ended_soon(connection: Connection) -> Iterator[None]:
    """A broker that does not answer does not answer to a farewell either."""
    try:
        yield
    except BaseException:
        _cut_off(connection)
        raise
    if connection.connected:
        made: Any = connection.connection
        try:
            made.transport.sock.settimeout(_CONFIRM_SECONDS)
            made.close()
        # What was confirmed counts, however the connection ends.
        except Exception:
            _cut_off(connection)


def _cut_off(connection: Connection) -> None:
    if connection.connected:
        made: Any = connection.connection
        made.collect()


def _publish(channel: Any, message: Outgoing) -> None:
    """Into its very queue: its exchange may lead to others, which had copies of their own."""
    _send(
        channel,
        message.body,
        content_type=message.content_type or "application/json",
        content_encoding=message.content_encoding or "utf-8",
        headers=dict(message.headers),
        routing_key=message.queue,
        mandatory=True,
        delivery_mode=_PERSISTENT,
        **{"priority": None, **message.properties},
    )


def _send(channel: Any, body: bytes, **options: Any) -> None:
    Producer(channel, auto_declare=False).publish(
        body, exchange="", confirm_timeout=_CONFIRM_SECONDS, **options
    )


def _close(channel: Any) -> None:
    try:
        channel.close()
    # The broker may have closed it.
    except Exception:
        logger.debug("a channel was closed already", exc_info=True)
