"""raw_letter: the dead letter of a message that never became a task."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from celery import Celery

from hardening.capture import Delivery, argument_names, chord_around, names_of, queue_of, versions
from hardening.conf import load_settings
from hardening.core.identity import ATTEMPTS_HEADER, identity_of
from hardening.core.letter import Attempt, Canvas, DeadLetter, Payload
from hardening.core.reasons import Reason
from hardening.core.redaction import project_redactor
from hardening.history import MAX_MESSAGE_CHARS, attempt_from, attempt_number, class_path, decode_history

from .errors import NotATask
from .reading import NAMELESS, Reading, accepted_by, bytes_of, read
from .shape import is_too_deep

__all__ = ["ODD_HEADERS", "ODD_PROPERTIES", "raw_letter"]

logger = logging.getLogger("hardening")

ODD_HEADERS = "hardening_headers"
ODD_PROPERTIES = "hardening_properties"
"""Under these names the payload's properties keep, as text, headers and properties that are none."""


def raw_letter(
    app: Celery, raw: Delivery, *, reason: Reason, error: BaseException | str, worker: str
) -> DeadLetter:
    """The letter of a message as the broker delivered it, whatever it holds. Never raises.

    Its payload is the message byte for byte. What can be read of it names the task, its id, its earlier
    attempts and its workflow; a message without an id is named by its bytes, so that the same message
    delivered twice is one letter. `error` is what keeps it from being a task; its text is redacted.
    """
    reading = _unread(raw)
    try:
        reading = read(raw, accepted_by(app))
        return _letter(app, raw, reading, reason=reason, error=error, worker=worker)
    # Whatever is odd about a message, it must not end without a letter.
    except Exception:
        logger.exception(
            "the letter of message %s is kept without its details",
            reading.task_id,
            extra={"task_id": reading.task_id, "reason": reason.value},
        )
    now = datetime.now(UTC)
    error_class = class_path(NotATask if isinstance(error, str) else type(error))
    return DeadLetter(
        delivery_key=reading.task_id,
        replay_number=0,
        task_id=reading.task_id,
        task_name=reading.task_name,
        reason=reason.value,
        attempts=(Attempt(number=1, error_class=error_class, message="", failed_at=now),),
        payload=_payload(raw),
        failed_at=now,
        queue=raw.routing_key,
        worker=worker,
    )


def _unread(raw: Delivery) -> Reading:
    """What is known of a message that cannot be read: its bytes."""
    named = sha256(bytes_of(raw.body)).hexdigest()[:40]
    return Reading(task_id=f"message-{named}", task_name=NAMELESS, has_id=False, request={})


def _letter(
    app: Celery,
    raw: Delivery,
    reading: Reading,
    *,
    reason: Reason,
    error: BaseException | str,
    worker: str,
) -> DeadLetter:
    request = reading.request
    identity = identity_of(request, reading.task_id)
    group, chord = chord_around(request.get("group"), reading.embed)
    task = app.tasks.get(reading.task_name)
    clean = _cleaner(reading, argument_names(task) if task is not None else ())
    earlier = decode_history(request.get(ATTEMPTS_HEADER))
    attempt = _attempt(error, reading, worker=worker, clean=clean, number=len(earlier) + 1)
    properties: object = raw.properties
    priority = properties.get("priority") if isinstance(properties, Mapping) else None
    return DeadLetter(
        delivery_key=identity.delivery_key,
        replay_number=identity.replay_number,
        replay_of=identity.replay_of,
        task_id=reading.task_id,
        task_name=reading.task_name,
        root_id=_text(request.get("root_id")),
        parent_id=_text(request.get("parent_id")),
        reason=reason.value,
        attempts=(*earlier, attempt),
        payload=_payload(raw),
        failed_at=attempt.failed_at or datetime.now(UTC),
        exchange=raw.exchange,
        routing_key=raw.routing_key,
        queue=queue_of(app, raw.exchange, raw.routing_key),
        priority=priority if isinstance(priority, int) else None,
        eta=_text(request.get("eta")),
        expires=_text(request.get("expires")),
        redelivered=raw.redelivered,
        canvas=Canvas(
            group=group,
            chord=chord,
            chain=names_of(reading.embed.get("chain")),
            callbacks=names_of(reading.embed.get("callbacks")),
            errbacks=names_of(reading.embed.get("errbacks")),
        ),
        argument_names=argument_names(task) if task is not None else (),
        worker=worker,
        release=load_settings()[0].release,
        versions=versions(),
    )


def _attempt(
    error: BaseException | str, reading: Reading, *, worker: str, clean: Callable[[str], str], number: int
) -> Attempt:
    number = max(number, attempt_number(reading.request.get("retries")))
    if isinstance(error, BaseException):
        return attempt_from(error, number=number, worker=worker, started_at=None, clean=clean)
    return Attempt(
        number=number,
        error_class=class_path(NotATask),
        message=clean(error)[:MAX_MESSAGE_CHARS],
        worker=worker,
        failed_at=datetime.now(UTC),
    )


def _cleaner(reading: Reading, names: tuple[str, ...]) -> Callable[[str], str]:
    redactor = project_redactor()
    args = reading.args if isinstance(reading.args, (list, tuple)) else ()
    kwargs = reading.kwargs if isinstance(reading.kwargs, Mapping) else {}
    secrets = redactor.secrets_in(args, kwargs, names)
    return lambda text: redactor.text(text, secrets)


def _payload(raw: Delivery) -> Payload:
    headers, odd_headers = _carried(raw.headers)
    properties, odd_properties = _carried(raw.properties)
    if odd_headers:
        properties[ODD_HEADERS] = odd_headers
    if odd_properties:
        properties[ODD_PROPERTIES] = odd_properties
    return Payload(
        body=bytes_of(raw.body),
        content_type=_text(raw.content_type),
        content_encoding=_text(raw.content_encoding),
        headers=headers,
        properties=properties,
    )


def _carried(value: object) -> tuple[dict[str, Any], str]:
    """Names and values as a letter carries them, or the text of what are none."""
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value) and not is_too_deep(value):
        return dict(value), ""
    if not value:
        return {}, ""
    try:
        return {}, json.dumps(value, default=repr)
    # Keys of other kinds, or so deep that even this gives up.
    except Exception:
        return {}, f"({type(value).__name__} that cannot be shown)"


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return str(value)
    # An integer of too many digits, or nested too deep.
    except Exception:
        return f"({type(value).__name__})"
