"""What RabbitMQ dead-letters is taken in: a letter first, its result, then the acknowledgement.

The argument. A queue with our dead-letter exchange moves what it gives up into one durable queue, which
every hardened worker consumes, on a channel of its own of the worker's connection. The message is the
broker's until it is acknowledged. The worker dies before the letter is kept: another gets it. It dies
after that: the letter is kept again, which its store takes for the same one, and the result is set again.

A letter that no store takes keeps its message unacknowledged; it is tried again with back-off. The broker
delivers so many and no more to one worker: no hot loop, and nothing is lost with the connection.

Not everything that the broker gives up is dead. A quorum queue counts lost connections as deliveries, so the
work may have succeeded, or run still, when its message is at its limit. Twins are asked first: what succeeded
is acknowledged, what runs is waited for. A task that rejected its message has left its letter already. And a
policy for all queues brings Celery's events and remote control here when they have expired: no tasks.

A declaration that the broker refuses, for the worker may not or the queue is another's, ends nothing: the
queue that is there is used as it is, else the log says what is not taken in.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from celery import bootsteps, states
from celery.exceptions import TaskRevokedError
from kombu import Consumer, Exchange, Queue

from hardening.capture import Delivery, LetterNotKept, delivery_of, keeper_for
from hardening.conf import load_settings
from hardening.core.errors import HardeningError
from hardening.core.letter import DeadLetter
from hardening.core.reasons import Reason
from hardening.core.redaction import project_redactor
from hardening.effective import transport_of
from hardening.poison.death import attempts_of
from hardening.poison.watch import poison_for
from hardening.poison.work import digest_of
from hardening.queues import DEAD_LETTER_EXCHANGE, DEAD_LETTERED_QUEUE
from hardening.twins.watch import Verdict, twins_for

from .letters import raw_letter
from .reading import accepted_by
from .rejected import has_letter
from .results import end_result
from .x_death import Death, death_of

__all__ = ["DeadLettered", "DeadLetteredByBroker", "Intake"]

logger = logging.getLogger("hardening")

MOST_AT_ONCE = 20
"""Unacknowledged messages of one worker: what waits for a store, or for a twin, is among them."""

TURN_SECONDS = 1.0
GRACE_SECONDS = 0.5
"""How long one at its delivery limit waits for the word of the worker that had it: see twins.watch."""

ASKED_EVERY_SECONDS = 2.0
LONGEST_WAIT_SECONDS = 60.0

_TEXTS = {
    Reason.DELIVERY_LIMIT: "it was delivered as often as its queue allows, and never acknowledged",
    Reason.EXPIRED: "its time to live was over before a worker had it",
    Reason.BROKER_REJECTED: "a worker rejected it",
    Reason.BROKER_DROPPED: "the queue was full",
}


class DeadLetteredByBroker(HardeningError):
    """The result of a task whose message RabbitMQ gave up; the text says why, and in which queue."""


class DeadLettered(bootsteps.StartStopStep):
    """Consumes what the broker has dead-lettered. Begins anew with each connection."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._channel: Any = None
        self._entry: Any = None

    def include_if(self, consumer: Any) -> bool:
        """Only RabbitMQ dead-letters."""
        return transport_of(consumer.app) == "amqp"

    def start(self, consumer: Any) -> None:
        """Declare and consume. Raises what a broken connection raises, and nothing else."""
        intake = Intake(consumer)
        self._channel = _consuming(consumer.connection, intake)
        if self._channel is not None:
            self._entry = consumer.timer.call_repeatedly(TURN_SECONDS, intake.turn)

    def stop(self, consumer: Any) -> None:
        """The connection is gone, or the worker stops. What is not acknowledged goes back."""
        entry, self._entry = self._entry, None
        if entry is not None:
            entry.cancel()
        channel, self._channel = self._channel, None
        if channel is not None:
            with suppress(Exception):  # It may have been closed with its connection.
                channel.close()

    shutdown = stop


@dataclass(slots=True)
class _Waiting:
    message: Any
    due: float
    seconds: float


class Intake:
    """The dead-lettered messages that one connection of a worker holds. Used from its main loop."""

    def __init__(self, consumer: Any, clock: Any = time.monotonic) -> None:
        self._consumer = consumer
        self._app = consumer.app
        self.accept = sorted(accepted_by(consumer.app))
        """What is decoded: of protocol 1 the body tells the id."""

        self._clock = clock
        self._waiting: dict[int, _Waiting] = {}
        self._busy = False

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, message: Any) -> None:
        """A message has come."""
        death = death_of(message.headers)
        if death is not None and death.reason is Reason.DELIVERY_LIMIT:
            self._wait(message, GRACE_SECONDS)
        else:
            self._settle(message, death)

    def turn(self) -> None:
        """Try again what is due."""
        if self._busy:  # On gevent the next turn comes while this one waits for a store.
            return
        self._busy = True
        try:
            now = self._clock()
            for waiting in [each for each in self._waiting.values() if each.due <= now]:
                self._settle(waiting.message, death_of(waiting.message.headers))
        finally:
            self._busy = False

    def _settle(self, message: Any, death: Death | None) -> None:
        try:
            self._decide(message, death)
        except LetterNotKept:
            self._wait_longer(message)  # Said by the keeper.
        # One odd message must neither end the worker nor be lost.
        except Exception:
            logger.exception("a message that the broker dead-lettered could not be taken in; tried again")
            self._wait_longer(message)

    def _decide(self, message: Any, death: Death | None) -> None:
        if death is not None and self._is_celerys_own(death.queue):
            self._acknowledge(message)
            return
        found = twins_for(self._app).standing(message, self._consumer)
        if found is Verdict.HOLD:
            self._wait(message, ASKED_EVERY_SECONDS)
            return
        if found is Verdict.DONE:
            logger.warning(
                "task %s[%s] was dead-lettered by the broker, and is acknowledged: it has succeeded",
                *_named(message),
            )
        elif not (death and death.reason is Reason.BROKER_REJECTED and has_letter(self._app, message)):
            self._keep(message, death)
        self._acknowledge(message)
        if death is not None and death.reason is Reason.DELIVERY_LIMIT:
            poison_for(self._app).give_up(message)

    def _acknowledge(self, message: Any) -> None:
        self._waiting.pop(id(message), None)
        message.ack_log_error(logger, self._consumer.connection_errors)

    def _is_celerys_own(self, queue: str) -> bool:
        events = str(self._app.conf.event_queue_prefix)
        return queue.endswith(".pidbox") or queue == events or queue.startswith(f"{events}.")

    def _keep(self, message: Any, death: Death | None) -> None:
        raw = delivery_of(message)
        reason = death.reason if death else Reason.BROKER_REJECTED
        exc: Exception = DeadLetteredByBroker(_text_of(death))
        if death is not None:
            raw = _as_it_was(raw, death)
        if reason is not Reason.EXPIRED or load_settings()[0].intake_rules.keep_expired:
            letter = raw_letter(
                self._app, raw, reason=reason, error=exc, worker=str(self._consumer.hostname or "")
            )
            if death is not None:
                letter = replace(letter, queue=death.queue)
            if reason is Reason.DELIVERY_LIMIT:
                letter = self._with_deaths(letter, message)
            keeper_for(self._app).keep_and_close(letter)
        if reason is Reason.EXPIRED:
            end_result(self._app, raw, TaskRevokedError("expired"), state=states.REVOKED)
        else:
            end_result(self._app, raw, exc)

    def _with_deaths(self, letter: DeadLetter, message: Any) -> DeadLetter:
        """With an attempt for each death that workers know of, before the broker's word."""
        *earlier, last = letter.attempts
        case = poison_for(self._app).ledger.look(digest_of(message)).case
        known = attempts_of(case, earlier)
        hide = project_redactor()
        told = [replace(each, message=hide.text(each.message, ())) for each in known[len(earlier) :]]
        return replace(letter, attempts=(*earlier, *told, replace(last, number=len(known) + 1)))

    def _wait(self, message: Any, seconds: float) -> None:
        self._waiting[id(message)] = _Waiting(message, self._clock() + seconds, seconds)

    def _wait_longer(self, message: Any) -> None:
        known = self._waiting.get(id(message))
        before = known.seconds if known else ASKED_EVERY_SECONDS / 2
        self._wait(message, min(max(before, ASKED_EVERY_SECONDS / 2) * 2, LONGEST_WAIT_SECONDS))


def _consuming(connection: Any, intake: Intake) -> Any | None:
    """A channel that consumes the queue; None where there is no queue to consume."""
    channel = _declared(connection)
    if channel is None:
        return None
    try:
        consumer = Consumer(
            channel,
            [_queue()],
            auto_declare=False,
            no_ack=False,
            accept=intake.accept,
            on_message=intake.take,
            on_decode_error=lambda message, _: intake.take(message),
        )
        consumer.qos(prefetch_count=MOST_AT_ONCE)
        consumer.consume()
    except connection.channel_errors as exc:
        logger.error(
            "nothing of what RabbitMQ dead-letters is taken in: it refuses to deliver from the queue %r: %s",
            DEAD_LETTERED_QUEUE,
            exc,
        )
        return None
    return channel


def _declared(connection: Any) -> Any | None:
    """A channel after the declaration, which the broker may refuse: it closes the channel then."""
    channel = connection.channel()
    try:
        _queue()(channel).declare()
        return channel
    except connection.channel_errors as exc:
        refusal = exc
    channel = connection.channel()
    try:
        _queue()(channel).queue_declare(passive=True)
    except connection.channel_errors:
        logger.error(
            "nothing of what RabbitMQ dead-letters is taken in: it refuses to declare the exchange %r, and "
            "the queue %r bound to it (%s). Give the worker's user the right to configure, write and read "
            "them, or declare them for it: a durable fan-out exchange, a durable queue.",
            DEAD_LETTER_EXCHANGE,
            DEAD_LETTERED_QUEUE,
            refusal,
        )
        return None
    logger.warning(
        "RabbitMQ refuses to declare the exchange %r, or the queue %r bound to it; the queue that is there "
        "is taken in from: %s",
        DEAD_LETTER_EXCHANGE,
        DEAD_LETTERED_QUEUE,
        refusal,
    )
    return channel


def _queue() -> Queue:
    exchange = Exchange(DEAD_LETTER_EXCHANGE, type="fanout", durable=True)
    return Queue(DEAD_LETTERED_QUEUE, exchange, routing_key="", durable=True, auto_delete=False)


def _as_it_was(raw: Delivery, death: Death) -> Delivery:
    """As its own queue would have delivered it: a replay goes back there."""
    if death.exchange:
        return raw._replace(exchange=death.exchange, routing_key=death.routing_key)
    return raw._replace(exchange="", routing_key=death.queue)


def _text_of(death: Death | None) -> str:
    if death is None:
        return "it came from the broker's dead-letter exchange, without a word of its death"
    what = _TEXTS.get(death.reason, "")
    return f"RabbitMQ gave it up in the queue {death.queue!r} ({death.said}): {what}"


def _named(message: Any) -> tuple[str, str]:
    headers = message.headers if isinstance(message.headers, dict) else {}
    return str(headers.get("task", "?")), str(headers.get("id", "?"))
