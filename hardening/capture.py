"""Builds dead letters and keeps them: in the chosen sink, else on the broker, else not at all, said so."""

from __future__ import annotations

import inspect
import logging
import os
import platform
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.metadata import version
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from celery import Celery
from celery.exceptions import Ignore

from .classification.current import project_classifier
from .conf import HardeningSettings, load_settings
from .core.events import letter_kept, tell
from .core.identity import ATTEMPTS_HEADER, BEAT_HEADER, identity_of
from .core.letter import COMPRESSED, Attempt, Canvas, DeadLetter, Payload, dump_letter, load_letter
from .core.loading import load_backend
from .core.parking import publish_letter
from .core.reasons import Reason
from .core.redaction import Redactor, project_redactor
from .core.sink import DeadLetterSink, offered_sink
from .history import attempt_from, attempt_number, class_path, decode_history
from .reason import underlying

__all__ = [
    "DELIVERY",
    "BrokerSink",
    "Delivery",
    "Keeper",
    "LetterNotKept",
    "argument_names",
    "chord_around",
    "chosen_sink",
    "delivery_of",
    "keeper_for",
    "names_of",
    "queue_of",
    "versions",
]

logger = logging.getLogger("hardening")

DELIVERY = "hardening_delivery"
"""Key under which the worker's parent hands the raw message to the child. It lies in the request's
`properties`, because a request's other unknown keys would travel on in the headers of a retry."""


class Delivery(NamedTuple):
    """The message as delivered. Pickled with each task, as a tuple: references to what is pickled anyway.

    `pid` is the process that received it. Its repr shows nothing: Celery logs it at debug level.
    """

    body: Any
    content_type: str | None
    content_encoding: str | None
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    exchange: str
    routing_key: str
    redelivered: bool
    pid: int

    def __repr__(self) -> str:
        return "Delivery(...)"


class LetterNotKept(Ignore):
    """No store took the letter. Carries it, so that the worker's parent can try again.

    An Ignore, so that Celery reports no outcome: the message is still unacknowledged and the work
    still pending. Its text never shows the letter.
    """

    def __init__(self, wire: str) -> None:
        super().__init__(wire)
        self.wire = wire

    @property
    def letter(self) -> DeadLetter:
        """The letter that was not kept."""
        return load_letter(self.wire)

    def __repr__(self) -> str:
        return "LetterNotKept()"

    def __str__(self) -> str:
        return "the dead letter could be kept neither in its store nor on the broker"


class BrokerSink:
    """Keeps letters in a durable queue on the broker, until they are ingested."""

    def __init__(self, app: Celery, queue: str) -> None:
        self._app = app
        self._queue = queue

    def keep(self, letter: DeadLetter) -> None:
        """Returns when the broker has the letter. On AMQP it has confirmed it."""
        publish_letter(self._app, letter, queue=self._queue)


def chosen_sink(app: Celery, settings: HardeningSettings) -> DeadLetterSink:
    """The sink of the settings, else the one an installed app brought, else the broker.

    Raises BackendError.
    """
    named = settings.dead_letter_sink
    if named:
        return _sink(str(named.get("BACKEND", "")), named.get("OPTIONS") or {})
    offered = offered_sink()
    if offered:
        return _sink(offered, {})
    return BrokerSink(app, settings.dead_letter_queue)


def _sink(dotted_path: str, options: Mapping[str, Any]) -> DeadLetterSink:
    sink: DeadLetterSink = load_backend(DeadLetterSink, dotted_path, options)
    return sink


class Keeper:
    """Keeps letters for one Celery app."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._settings = load_settings()[0]
        self._sink: DeadLetterSink | None = None
        self._redactor: Redactor = project_redactor()

    def keep(self, letter: DeadLetter) -> None:
        """Returns when the letter is stored durably. Raises LetterNotKept, with the letter in it."""
        fields = {
            "task_id": letter.task_id,
            "task_name": letter.task_name,
            "delivery_key": letter.delivery_key,
            "reason": letter.reason,
            "attempt": letter.last_attempt.number,
        }
        sink: DeadLetterSink | None = None
        try:
            sink = self._chosen()
            sink.keep(letter)
        # Whatever the store raises, the letter must go on to the next place.
        except Exception as exc:
            if not isinstance(sink, BrokerSink):
                logger.warning(
                    "the dead-letter store did not take the letter of task %s[%s]: %r; the broker is tried",
                    letter.task_name,
                    letter.task_id,
                    exc,
                    extra=fields,
                )
            try:
                publish_letter(self._app, letter, queue=self._settings.dead_letter_queue)
            except Exception as second:
                logger.critical(
                    "no store took the dead letter of task %s[%s] (%r); its message stays unacknowledged",
                    letter.task_name,
                    letter.task_id,
                    second,
                    extra=fields,
                )
                raise LetterNotKept(dump_letter(letter).decode()) from second
        logger.warning(
            "dead letter kept: task %s[%s], reason %s, attempt %d, %s",
            letter.task_name,
            letter.task_id,
            letter.reason,
            letter.last_attempt.number,
            letter.last_attempt.error_class,
            extra=fields,
        )
        tell(
            letter_kept,
            task_id=letter.task_id,
            task_name=letter.task_name,
            delivery_key=letter.delivery_key,
            replay_number=letter.replay_number,
            reason=letter.reason,
            scheduled=str(letter.payload.headers.get(BEAT_HEADER) or ""),
        )

    def keep_and_close(self, letter: DeadLetter) -> None:
        """As `keep`, and leaves no connection open: a parent forks."""
        try:
            self.keep(letter)
        finally:
            close = getattr(self._sink, "close", None)
            if close is not None:
                close()

    def keep_execution(self, execution: Any, exc: BaseException, reason: Reason, *, close: bool) -> None:
        """Keep the letter of an execution whose body, or whose trace, raised `exc`.

        `close`: leave no connection open, since Celery has cleaned up behind the task already.
        """
        request = execution.request
        try:
            letter = self.letter(
                task=execution.task,
                task_id=execution.task_id,
                delivery=execution.delivery,
                embedded=request.__dict__,
                reason=reason,
                attempts=[*self.earlier_attempts(request), execution.attempt(underlying(exc))],
                worker=str(request.hostname or ""),
            )
        # Whatever is odd about a message, it must not end without a letter.
        except Exception:
            letter = _bare_letter(execution.task, execution.task_id, execution.delivery, exc, reason)
        (self.keep_and_close if close else self.keep)(letter)

    def letter(
        self,
        *,
        task: Any,
        task_id: str,
        delivery: Delivery,
        embedded: Mapping[str, Any],
        reason: Reason,
        attempts: Sequence[Attempt],
        worker: str,
    ) -> DeadLetter:
        """Put a letter together. `embedded` holds callbacks, errbacks, chain and chord."""
        headers = delivery.headers
        identity = identity_of(headers, task_id)
        group, chord = chord_around(headers.get("group"), embedded)
        return DeadLetter(
            delivery_key=identity.delivery_key,
            replay_number=identity.replay_number,
            replay_of=identity.replay_of,
            task_id=task_id,
            task_name=str(headers.get("task") or task.name),
            root_id=_text(headers.get("root_id")),
            parent_id=_text(headers.get("parent_id")),
            reason=reason.value,
            attempts=tuple(attempts),
            payload=_payload(delivery),
            failed_at=attempts[-1].failed_at or datetime.now(UTC),
            exchange=delivery.exchange,
            routing_key=delivery.routing_key,
            queue=queue_of(self._app, delivery.exchange, delivery.routing_key),
            priority=delivery.properties.get("priority"),
            eta=_text(headers.get("eta")),
            expires=_text(headers.get("expires")),
            redelivered=delivery.redelivered,
            canvas=Canvas(
                group=group,
                chord=chord,
                chain=names_of(embedded.get("chain")),
                callbacks=names_of(embedded.get("callbacks")),
                errbacks=names_of(embedded.get("errbacks")),
            ),
            argument_names=argument_names(task),
            worker=worker,
            release=self._settings.release,
            versions=versions(),
        )

    def earlier_attempts(self, request: Any) -> list[Attempt]:
        """The attempts that the message carries from its earlier deliveries."""
        return decode_history(getattr(request, ATTEMPTS_HEADER, None))

    def cleaner(self, task: Any, request: Any) -> Callable[[str], str]:
        """A function that takes this task's secrets out of a text."""
        secrets = self._redactor.secrets_in(
            _sequence(getattr(request, "args", None)),
            _mapping(getattr(request, "kwargs", None)),
            argument_names(task),
        )
        return lambda text: self._redactor.text(text, secrets)

    def parent_letter(self, request: Any, exc: BaseException, reason: Reason) -> DeadLetter:
        """The letter of a request whose failure only the worker's parent can see."""
        delivery = delivery_of(request.message)
        try:
            return self._parent_letter(request, delivery, exc, reason)
        # As in `keep_execution`.
        except Exception:
            return _bare_letter(request.task, request.id, delivery, exc, reason)

    def _parent_letter(
        self, request: Any, delivery: Delivery, exc: BaseException, reason: Reason
    ) -> DeadLetter:
        embedded = request._payload[2] if isinstance(request._payload, (list, tuple)) else {}
        error = underlying(exc)
        verdict = project_classifier().judge(error)
        attempt = attempt_from(
            error,
            verdict=verdict.kind.value,
            rule=verdict.rule,
            number=attempt_number(delivery.headers.get("retries")),
            worker=str(request.hostname or ""),
            started_at=request.time_start,
            clean=self.cleaner(request.task, request),
        )
        return self.letter(
            task=request.task,
            task_id=request.id,
            delivery=delivery,
            embedded=_mapping(embedded),
            reason=reason,
            attempts=[*decode_history(delivery.headers.get(ATTEMPTS_HEADER)), attempt],
            worker=str(request.hostname or ""),
        )

    def _chosen(self) -> DeadLetterSink:
        if self._sink is None:
            self._sink = chosen_sink(self._app, self._settings)
        return self._sink


_keepers: WeakKeyDictionary[Celery, Keeper] = WeakKeyDictionary()


def keeper_for(app: Celery) -> Keeper:
    """The keeper of an app; one for each app and process."""
    keeper = _keepers.get(app)
    if keeper is None:
        keeper = _keepers[app] = Keeper(app)
    return keeper


def _payload(delivery: Delivery) -> Payload:
    body = delivery.body
    return Payload(
        body=body.encode() if isinstance(body, str) else bytes(body),
        content_type=delivery.content_type,
        content_encoding=delivery.content_encoding,
        headers=dict(delivery.headers),
        properties=dict(delivery.properties),
    )


def _bare_letter(
    task: Any, task_id: str, delivery: Delivery, exc: BaseException, reason: Reason
) -> DeadLetter:
    """What can be said without a look into the message: it is whole, and the error is named."""
    logger.error(
        "the letter of task %s[%s] is kept without its details", task.name, task_id, exc_info=sys.exc_info()
    )
    now = datetime.now(UTC)
    identity = identity_of(delivery.headers, task_id)
    return DeadLetter(
        delivery_key=identity.delivery_key,
        replay_number=identity.replay_number,
        replay_of=identity.replay_of,
        task_id=task_id,
        task_name=str(task.name),
        reason=reason.value,
        attempts=(Attempt(number=1, error_class=class_path(type(exc)), message="", failed_at=now),),
        payload=_payload(delivery),
        failed_at=now,
        exchange=delivery.exchange,
        routing_key=delivery.routing_key,
        queue=delivery.routing_key,
        redelivered=delivery.redelivered,
    )


def delivery_of(message: Any) -> Delivery:
    """A message as the broker delivered it."""
    info = message.delivery_info or {}
    properties = message.properties or {}
    if DELIVERY in properties:
        properties = {key: value for key, value in properties.items() if key != DELIVERY}
    if (
        getattr(message, "errors", None)
        and isinstance(properties, Mapping)
        and "compression" in (message.headers or {})
    ):
        properties = {**properties, COMPRESSED: True}  # kombu keeps the body of such a one as it came.
    return Delivery(
        message.body,
        message.content_type,
        message.content_encoding,
        message.headers,
        properties,
        _place(info.get("exchange")),
        _place(info.get("routing_key")),
        bool(info.get("redelivered")),
        os.getpid(),
    )


def _place(value: Any) -> str:
    """On Redis it is in the message, where anything may stand."""
    return value if isinstance(value, str) else ""


def argument_names(task: Any) -> tuple[str, ...]:
    """Names of a task's positional arguments, in order; empty where Python cannot tell."""
    run = getattr(task, "run", None)
    try:
        return (_positional if isinstance(run, Hashable) else _positional.__wrapped__)(run)
    except (TypeError, ValueError, AttributeError):
        return ()


@lru_cache(maxsize=1000)
def _positional(run: Any) -> tuple[str, ...]:
    parameters = inspect.signature(run).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in parameters if p.kind in positional)


def queue_of(app: Celery, exchange: str, routing_key: str) -> str:
    """The app's queue that such a message came from; else its routing key."""
    if not exchange:
        return routing_key
    queues: Any = app.amqp.queues
    for name, queue in queues.items():
        if queue.exchange.name == exchange and queue.routing_key == routing_key:
            return str(name)
    return routing_key


@cache
def versions() -> dict[str, str]:
    """The versions that a letter names."""
    packages = {name: version(name) for name in ("celery", "kombu", "django")}
    return {"python": platform.python_version(), **packages}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _name_of(signature: Any) -> str | None:
    if not isinstance(signature, Mapping):
        return None
    return _text(signature.get("task"))


def chord_around(group: Any, embedded: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The group of a task, and the name of its chord's body; else those of the last task of its chain, which
    is the member of the chord then. A chain is stored from its end."""
    chord = _name_of(embedded.get("chord"))
    chain = embedded.get("chain")
    if chord is None and isinstance(chain, (list, tuple)) and chain and isinstance(chain[0], Mapping):
        options = _mapping(chain[0].get("options"))
        chord = _name_of(options.get("chord"))
        if chord is not None:
            group = options.get("group_id")
    return _text(group), chord


def names_of(signatures: Any) -> tuple[str, ...]:
    """The task names of signatures."""
    if not isinstance(signatures, Iterable) or isinstance(signatures, (str, bytes, Mapping)):
        return ()
    return tuple(name for name in map(_name_of, signatures) if name)


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
