"""The broker connection of a leading Beat: bounded in time, and guarded right before a message leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from celery import Celery
from kombu import Connection
from kombu.exceptions import OperationalError, SerializationError

from hardening.core.broker import lasting_connection

from .clock import steady
from .dispatch import BrokerAway

__all__ = ["ANSWER_SECONDS", "Line", "NotTrusted"]

ANSWER_SECONDS = 2.0
_IDLE_SECONDS = 30.0
"""A connection that was not used for so long may have been cut off by what stands in between."""


class NotTrusted(Exception):
    """The term cannot be trusted any more: nothing was sent."""


class Line:
    """For one thread. `may_send` is asked when all that takes time is done, and the message is to leave."""

    def __init__(self, app: Celery, may_send: Callable[[], bool]) -> None:
        self._app = app
        self._may_send = may_send
        self._connection: Connection | None = None
        self._producer: Any = None
        self._used_at = 0.0
        self._reached = False

    def producer(self) -> Any:
        """Connects if need be: that takes a few seconds at most, or raises."""
        if self._producer is not None and steady() - self._used_at > _IDLE_SECONDS:
            self.drop()
        if self._producer is None:
            try:
                self._connection = lasting_connection(self._app, ANSWER_SECONDS)
            # Each transport has its own.
            except Exception as exc:
                raise BrokerAway(f"the broker cannot be reached: {type(exc).__name__}: {exc}") from exc
            self._producer = self._guarded(self._app.amqp.Producer(self._connection, auto_declare=False))
        self._used_at = steady()
        self._reached = False
        return self._producer

    def is_own_fault(self, exc: BaseException | None) -> bool:
        """Whether the message failed before the broker was asked, or cannot be written."""
        return not self._reached or any(isinstance(each, SerializationError) for each in _chain(exc))

    def is_away(self, exc: BaseException | None) -> bool:
        """Whether the connection is what failed."""
        own = () if self._connection is None else self._connection.recoverable_connection_errors
        return any(isinstance(each, (OSError, OperationalError, *own)) for each in _chain(exc))

    def drop(self) -> None:
        """Close it; the next use connects anew."""
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            try:
                connection.release()
            # It may be broken in any way.
            except Exception:
                return

    def _guarded(self, producer: Any) -> Any:
        plain = producer.publish

        def publish(*args: Any, **kwargs: Any) -> Any:
            if not self._may_send():
                raise NotTrusted("the term is over, or could not be renewed in time: nothing was sent")
            self._reached = True
            kwargs.setdefault("timeout", ANSWER_SECONDS)
            kwargs.setdefault("confirm_timeout", ANSWER_SECONDS)
            return plain(*args, **kwargs)

        producer.publish = publish
        return producer


def _chain(exc: BaseException | None) -> Iterator[BaseException]:
    """It, and what it came of."""
    while exc is not None:
        yield exc
        exc = exc.__cause__ or exc.__context__
