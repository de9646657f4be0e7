"""Publishes many messages in few round trips, and says of each whether the broker has it.

The argument. `send` tells a message sent only when the broker said so for it: on RabbitMQ by its confirm,
where a message that no queue takes comes back before (each is `mandatory`); on Redis by the answer to its
command. What is wrong with one message is told failed. What a broker refuses whatever it is (out of memory, a
queue that is full) is left to be sent later. It may have any of these all the same: whoever sends one again
sends the same message, and a hardened worker runs one of them to its end.

On Redis this is kombu's `Producer.batch`: its own envelope, its own keys, one pipeline. On RabbitMQ messages
are published on a channel that confirms, and the confirms are read when all of a batch are on their way. A
channel that RabbitMQ closes because of one message takes the confirms of the others along: all that are not
confirmed are sent once more then, each by itself, so that the one is found. Other transports publish one by
one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from celery import Celery
from kombu import Connection, Producer, Queue
from kombu.exceptions import BatchPublishError, KombuError  # type: ignore[attr-defined]  # Of 5.7.

from hardening.core.broker import batching_connection

from ..text import clip, without_credentials

__all__ = ["Outgoing", "Published", "Publisher", "error_text"]

_ANSWER_SECONDS = 10.0
_PERSISTENT = 2
_MOST_OF_AN_ERROR = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One message, ready to be published. `task_id` tells it from the others."""

    task_id: str
    body: bytes
    content_type: str | None
    content_encoding: str | None
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    exchange: str
    routing_key: str
    queue: str


@dataclass(slots=True)
class Published:
    """Filled while a batch is sent, so that an interrupted sender knows what the broker has.

    `unreachable`: why the broker takes nothing now, or not these; all that are neither sent nor failed may be
    sent later.
    """

    sent: list[Outgoing] = field(default_factory=list)
    failed: list[tuple[Outgoing, str]] = field(default_factory=list)
    unreachable: str | None = None


class Publisher:
    """One broker connection for a whole operation, opened at the first message. Use it as a context."""

    def __init__(self, app: Celery, *, answer_seconds: float = _ANSWER_SECONDS) -> None:
        """`answer_seconds`: so long it waits for an answer, or for confirms."""
        self.app = app
        self.answer_seconds = answer_seconds
        self._stack = ExitStack()
        self._connection: Connection | None = None
        self._channel: Any = None
        self._producer: Producer | None = None
        self._undeclarable: dict[str, str] = {}
        self.numbered: int | None = None
        """How many messages went over the channel since it confirms; None: it does not yet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. It may be used again."""
        self._connection = self._channel = self._producer = None
        self._undeclarable.clear()
        stack, self._stack = self._stack, ExitStack()
        stack.close()

    def send(self, messages: Sequence[Outgoing], into: Published) -> None:
        """Publish them; what became of each is in `into`, also when this is interrupted."""
        try:
            connection = self._open()
        except (KombuError, OSError) as exc:
            into.unreachable = error_text(exc)
            self.close()
            return
        try:
            ready = self._declared(connection, messages, into)
            if connection.transport.driver_type == "amqp":
                _Confirming(self).send(ready, into)
            elif self._batches():
                self._in_one_pipeline(ready, into)
            else:
                self._one_by_one(ready, into)
        except _away(connection) as exc:
            into.unreachable = error_text(exc)
            self.close()

    def length_of(self, queue: str) -> int | None:
        """How many messages wait in a queue; None where that cannot be told now."""
        try:
            connection = self._open()
            with connection.channel() as channel:
                declared: Any = channel
                return int(declared.queue_declare(queue=queue, passive=True).message_count)
        # No such queue, or no broker: sending will say so.
        except Exception:
            return None

    # Redis and others

    def _batches(self) -> bool:
        assert self._producer is not None
        return bool(getattr(self._producer, "supports_batch_publish", False))

    def _in_one_pipeline(self, messages: Sequence[Outgoing], into: Published) -> None:
        producer: Any = self._producer  # Of kombu 5.7; its stubs are older.
        try:
            with producer.batch(max_size=max(1, 2 * len(messages))):
                good = list(self._published(messages, into))
        except BatchPublishError as exc:
            into.unreachable = error_text(exc.__cause__ or exc)
            self.close()
            return
        into.sent += good

    def _one_by_one(self, messages: Sequence[Outgoing], into: Published) -> None:
        for message in self._published(messages, into):
            into.sent.append(message)

    def _published(self, messages: Sequence[Outgoing], into: Published) -> Iterator[Outgoing]:
        """Those that could be handed over. Raises what says that the broker is away."""
        away = _away(self.connection)
        for message in messages:
            try:
                self.publish(message)
            # Whatever else it is about this one, the others go on.
            except Exception as exc:
                if isinstance(exc, away):
                    raise
                into.failed.append((message, error_text(exc)))
                continue
            yield message

    def publish(self, message: Outgoing) -> None:
        """Hand one message to the channel as it is now."""
        assert self._producer is not None
        self._producer.publish(
            message.body,
            content_type=message.content_type or "application/json",
            content_encoding=message.content_encoding or "utf-8",
            headers=dict(message.headers),
            exchange=message.exchange,
            routing_key=message.routing_key,
            # Without it RabbitMQ confirms, and drops, a message that no queue takes.
            mandatory=True,
            delivery_mode=_PERSISTENT,
            **message.properties,
        )

    # Connection, channel, queues

    def _open(self) -> Connection:
        if self._connection is None:
            self._connection = self._stack.enter_context(batching_connection(self.app, self.answer_seconds))
            self.open_channel()
        return self._connection

    def open_channel(self) -> Any:
        """A new channel in the place of one that is closed."""
        assert self._connection is not None
        self._channel = self._stack.enter_context(self._connection.channel())
        self._producer = Producer(self._channel, auto_declare=False)
        self.numbered = None
        return self._channel

    @property
    def channel(self) -> Any:
        """The channel as it is now."""
        return self._channel

    @property
    def connection(self) -> Connection:
        """The connection, which is open."""
        assert self._connection is not None
        return self._connection

    def _declared(
        self, connection: Connection, messages: Sequence[Outgoing], into: Published
    ) -> list[Outgoing]:
        """Those whose queue is there, as far as the app knows it."""
        from kombu.common import maybe_declare

        queues = self.app.amqp.queues
        for name in {message.queue or message.routing_key for message in messages}:
            if name not in queues or name in self._undeclarable:
                continue
            queue: Queue = queues[name]
            try:
                maybe_declare(queue, self._channel)
            except connection.channel_errors as exc:
                if isinstance(exc, _away(connection)):
                    raise
                self._undeclarable[name] = error_text(exc)
                self.open_channel()
        ready = []
        for message in messages:
            why = self._undeclarable.get(message.queue or message.routing_key)
            if why is None:
                ready.append(message)
            else:
                into.failed.append((message, why))
        return ready


class _Confirming:
    """One batch on RabbitMQ."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._waiting: dict[int, Outgoing] = {}
        self._returned: dict[str, str] = {}

    def send(self, messages: Sequence[Outgoing], into: Published) -> None:
        """All on their way, then their confirms; with a channel that closes, each by itself."""
        connection = self._publisher.connection
        try:
            self._send(messages, into)
        except connection.channel_errors:
            settled = {each.task_id for each in into.sent} | {each.task_id for each, _ in into.failed}
            rest = [each for each in messages if each.task_id not in settled]
            for message in rest:
                self._waiting.clear()
                self._publisher.open_channel()
                try:
                    self._send([message], into)
                except connection.channel_errors as exc:
                    into.failed.append((message, error_text(exc)))
            self._publisher.open_channel()

    def _send(self, messages: Sequence[Outgoing], into: Published) -> None:
        self._listen(self._publisher.channel, into)
        connection = self._publisher.connection
        away = (*connection.connection_errors, *connection.channel_errors)
        for message in messages:
            number = self._publisher.numbered = (self._publisher.numbered or 0) + 1
            try:
                self._publisher.publish(message)
            except Exception as exc:
                if isinstance(exc, away):
                    raise
                # It could not be encoded: nothing of it is on its way.
                self._publisher.numbered -= 1
                into.failed.append((message, error_text(exc)))
                continue
            self._waiting[number] = message
        patience = self._publisher.answer_seconds
        until = time.monotonic() + patience
        while self._waiting:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"RabbitMQ confirmed nothing for {patience:g} s")
            connection.drain_events(timeout=left)

    def _listen(self, channel: Any, into: Published) -> None:
        if self._publisher.numbered is None:
            channel.confirm_select()
            self._publisher.numbered = 0
        channel.events["basic_ack"] = {lambda tag, multiple: self._confirmed(tag, multiple, into)}
        channel.events["basic_nack"] = {lambda tag, multiple: self._refused(tag, multiple, into)}
        channel.events["basic_return"] = {self._came_back}

    def _came_back(self, exc: Exception, _exchange: str, _routing_key: str, message: Any) -> None:
        self._returned[str(message.properties.get("correlation_id"))] = error_text(exc)

    def _confirmed(self, tag: int, multiple: bool, into: Published) -> None:
        for message in self._take(tag, multiple):
            why = self._returned.pop(message.task_id, None)
            if why is None:
                into.sent.append(message)
            else:
                into.failed.append((message, why))

    def _refused(self, tag: int, multiple: bool, into: Published) -> None:
        # It takes them as soon as there is room: nothing is wrong with them.
        if self._take(tag, multiple):
            into.unreachable = "RabbitMQ refused messages: a queue is full, or it is ill"

    def _take(self, tag: int, multiple: bool) -> list[Outgoing]:
        tags = [each for each in self._waiting if each <= tag] if multiple else [tag]
        return [self._waiting.pop(each) for each in tags if each in self._waiting]


def _away(connection: Connection) -> tuple[type[BaseException], ...]:
    """What says that the broker takes nothing now, whichever message it is."""
    away = (*connection.connection_errors, BatchPublishError)
    if connection.transport.driver_type != "redis":
        return away
    from redis.exceptions import ResponseError

    # Out of memory, read-only, loading: said of a command, and true of each.
    return (*away, ResponseError)


def error_text(exc: BaseException) -> str:
    """What is kept of an error: its class and text, without credentials."""
    return clip(without_credentials(f"{type(exc).__name__}: {exc}"), _MOST_OF_AN_ERROR)
