"""IntakeConsumer: what Celery drops with a line in the log is kept as a letter here.

The argument. Everything that comes to the worker passes `create_task_handler`, and everything that is not
handed to Celery's own handler passes `_end`. The letter is kept first, durably. Then the result is set, so
that callers, chains and chords end. Then the message is acknowledged, and Celery's signal is sent. Dying
after the letter: the message comes back, its letter is the same one, captured twice, and the rest is done
once more. Without a store that takes the letter the message is held, unacknowledged, and tried again; dying
meanwhile loses nothing. It is never rejected: a queue that dead-letters would keep it twice.

Only errors of the message are looked for, before Celery sees it (see `shape`). There is no broad catch
around Celery's handler, for a broken connection has to get through.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from celery import signals
from celery.exceptions import NotRegistered
from kombu.asynchronous.timer import to_timestamp
from kombu.exceptions import ContentDisallowed

from hardening.capture import Delivery, LetterNotKept, delivery_of, keeper_for
from hardening.conf import load_settings
from hardening.core.reasons import Reason
from hardening.delayed.due import due_of, moment_of
from hardening.holding import holding_for
from hardening.twins.here import is_severed

from .compression import ExpandsTooFar, bound_decompression
from .errors import NotATask
from .letters import raw_letter
from .reading import read
from .results import end_result
from .rules import IntakeRules
from .shape import Flaw, Times, flaw_of, flaw_of_body, flaw_of_properties
from .unregistered import Offering

__all__ = ["IntakeConsumer", "Unmade", "raw_of", "times_of"]

logger = logging.getLogger("hardening")

_BODIES = (str, bytes, bytearray, memoryview, type(None))


class Unmade:
    """A message of which no task is made. Refers to it, so that a held one is known to have an owner."""

    def __init__(
        self, consumer: Any, message: Any, raw: Delivery, exc: BaseException, tell: Callable[[], object]
    ) -> None:
        self._consumer = consumer
        self._message = message
        self._raw = raw
        self._exc = exc
        self._tell = tell

    def settle(self) -> None:
        """Its letter is kept: tell who waits for it, and take it off the broker."""
        consumer = self._consumer
        end_result(consumer.app, self._raw, self._exc)
        if not self._message.acknowledged:
            self._message.ack_log_error(logger, consumer.connection_errors)
        try:
            self._tell()
        # An event that cannot be sent: nothing rests on it.
        except Exception:
            logger.exception("the end of a message that is no task could not be told")

    def settle_held(self, error_class: str, message: str) -> None:
        """As `settle`, for one that was held. With its channel gone the broker has it back: it comes again,
        and whoever gets it tells the rest, once."""
        if not is_severed(self._message):
            self.settle()


class IntakeConsumer:
    """Mixed into a consumer class, before Celery's."""

    def create_task_handler(self: Any, *args: Any, **options: Any) -> Callable[[Any], Any]:
        """Celery's handler, which sees only what can be made a task."""
        handle = super().create_task_handler(*args, **options)  # type: ignore[misc]
        rules = load_settings()[0].intake_rules
        times = times_of(self.app)
        bound_decompression(rules.most_bytes)
        self._offering = Offering(self, rules)

        def on_task_received(message: Any) -> Any:
            found = _look(message, times, rules)
            if found is None:
                return handle(message)
            return self._end(message, *found)

        return on_task_received

    def on_decode_error(self: Any, message: Any, exc: Exception) -> None:
        """The body cannot be decoded, or decompressed to what a worker may hold."""
        if isinstance(message, Mapping) or not hasattr(message, "ack_log_error"):
            # Not even a message: only a transport that is not ours hands it on like this.
            super().on_decode_error(message, exc)  # type: ignore[misc]
            return
        if isinstance(exc, ExpandsTooFar):
            self._end(message, Reason.OVERSIZED, NotATask(str(exc)))
            return
        reason = Reason.CONTENT_REFUSED if isinstance(exc, ContentDisallowed) else Reason.UNDECODABLE
        self._end(message, reason, exc)

    def on_unknown_message(self: Any, body: Any, message: Any) -> None:
        """It names no task."""
        self._end(message, Reason.NOT_A_TASK, NotATask("neither its headers nor its body name a task"))

    def on_invalid_task(self: Any, body: Any, message: Any, exc: Exception) -> None:
        """Celery found what `shape` did not look for."""
        reason = Reason.CONTENT_REFUSED if isinstance(exc, ContentDisallowed) else Reason.MALFORMED
        self._end(message, reason, exc)

    def on_unknown_task(self: Any, body: Any, message: Any, exc: Exception) -> None:
        """No task of this name: offered again where the project wants it, then kept."""
        if self._offering.takes(message):
            return
        reading = read(raw_of(message), message.accept or ())
        name = reading.task_name
        tell = partial(self._tell_unknown, message, exc, name, reading.task_id)
        self._end(message, Reason.UNREGISTERED, NotRegistered(name), tell=tell)

    def _tell_unknown(self: Any, message: Any, exc: Exception, name: str, task_id: str) -> None:
        if self.event_dispatcher:
            self.event_dispatcher.send("task-failed", uuid=task_id, exception=f"NotRegistered({name!r})")
        signals.task_unknown.send(sender=self, message=message, exc=exc, name=name, id=task_id)

    def _end(
        self: Any,
        message: Any,
        reason: Reason,
        exc: BaseException,
        *,
        tell: Callable[[], object] | None = None,
    ) -> None:
        """Keep the letter, then all the rest; or hold the message until it is kept."""
        raw = raw_of(message)
        letter = raw_letter(self.app, raw, reason=reason, error=exc, worker=str(self.hostname))
        # A decoder's error may quote what it could not decode: in the letter it is cleaned.
        told = NotATask(letter.last_attempt.message) if reason is Reason.UNDECODABLE else exc
        if tell is None:
            refused = None if reason is Reason.NOT_A_TASK else exc
            tell = partial(signals.task_rejected.send, sender=self, message=message, exc=refused)
        unmade = Unmade(self, message, raw, told, tell)
        try:
            keeper_for(self.app).keep_and_close(letter)
        except LetterNotKept as not_kept:
            holding_for(self.app).hold(unmade, not_kept.letter)
            return
        unmade.settle()


def _look(message: Any, times: Times, rules: IntakeRules) -> tuple[Reason, BaseException] | None:
    """Why a message is no task, if it is none."""
    body = message.body
    if not isinstance(body, _BODIES):
        return Reason.MALFORMED, NotATask(f"its body is a {type(body).__name__}, not text or bytes")
    if body is not None and len(body) > rules.most_bytes:
        return Reason.OVERSIZED, NotATask(f"its body has {len(body)} bytes, more than {rules.most_bytes}")
    if not isinstance(message.content_type, (str, type(None))):
        return Reason.MALFORMED, NotATask("its content type is no text")
    try:
        payload = message.payload  # Celery's request asks for it as well; it is decoded once.
    # A decoder may raise anything about what somebody sent; no connection is used here.
    except Exception as exc:
        return Reason.CONTENT_REFUSED if isinstance(exc, ContentDisallowed) else Reason.UNDECODABLE, exc
    flaw: Flaw | None = (
        flaw_of(message.headers, payload, times)
        or flaw_of_properties(message.properties)
        or flaw_of_body(message, payload)
    )
    return None if flaw is None else (flaw.reason, NotATask(flaw.text))


def raw_of(message: Any) -> Delivery:
    """A message as the broker delivered it, also where its headers are none."""
    delivery = delivery_of(message)
    envelope = getattr(message, "_raw", None)
    if isinstance(envelope, Mapping) and not isinstance(envelope.get("headers"), (Mapping, type(None))):
        return delivery._replace(headers=envelope["headers"])
    return delivery


def times_of(app: Any) -> Times:
    """How an app's workers read times: as Celery does, when it makes a request and puts it on a timer."""

    def is_eta(value: Any) -> bool:
        moment = moment_of(value, app)
        if moment is None or due_of(value, app) is None:
            return False
        try:
            to_timestamp(moment)
        except (OverflowError, ValueError, OSError, TypeError):
            return False
        return True

    return Times(is_eta=is_eta, is_expires=lambda value: moment_of(value, app) is not None)
