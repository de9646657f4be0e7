"""Publishes what follows a failed attempt: a retry, or the same attempt put back for a while.

The state RETRY is stored before the next message is published. Celery stores it afterwards, when the next
attempt may have ended: a FAILURE that was stored in between would be overwritten, and callers wait for ever.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import Any

from celery.exceptions import Reject, Retry, SoftTimeLimitExceeded
from kombu.exceptions import ContentDisallowed

from hardening.classification.current import project_classifier
from hardening.core.identity import (
    ATTEMPTS_HEADER,
    DELAYED_HEADER,
    DEPENDENCY_HEADER,
    DUE_HEADER,
    FIRST_HEADER,
    OFFERS_HEADER,
    PARKED_HEADER,
    RECOVERED_HEADER,
)
from hardening.history import attempt_number
from hardening.returning import RetryNotSent

from .aftermath import Next, Step, headers_for

__all__ = ["RetryUnpublished", "not_sent", "own_headers", "send", "send_raw"]

logger = logging.getLogger("hardening")

_STORED = "_hardening_retry_stored"

_OURS = frozenset(
    {
        *(ATTEMPTS_HEADER, DELAYED_HEADER, DEPENDENCY_HEADER, DUE_HEADER, FIRST_HEADER, PARKED_HEADER),
        *(OFFERS_HEADER, RECOVERED_HEADER),  # Of the message alone; a suspect's retry is a suspect's.
    }
)


class RetryUnpublished(Reject):
    """The task asked for a retry that cannot be sent at all, or Retry was raised by hand."""


def send(
    execution: Any, own: Any, step: Step, exc: BaseException | None, options: Mapping[str, Any]
) -> Retry:
    """Publish a retry, or the message once more, and return what Celery is to be told.

    `own` is the task class's own retry; `options` are the author's. Raises RetryNotSent where the
    broker takes no message now, RetryUnpublished where this message can never be sent.
    """
    request = execution.request
    headers = {
        **own_headers(request),
        **(options.get("headers") or {}),
        **headers_for(execution, step),
    }
    hop = min(step.delay, execution.longest_hop)
    if step.next is not Next.RETRY:
        earlier = getattr(request, ATTEMPTS_HEADER, None)
        if earlier:
            headers[ATTEMPTS_HEADER] = earlier
        return _put_back(execution, step, hop, exc, headers)
    history = execution.history_with(exc, step.verdict)
    if history:
        headers[ATTEMPTS_HEADER] = history
    limit = attempt_number(request.retries)  # Ours has decided; Celery's own limit must not stop it.
    arguments = {
        **options,
        "exc": exc,
        "throw": False,
        "max_retries": limit,
        "headers": headers,
        "countdown": hop,
        "eta": None,
    }
    answer = send_raw(execution, exc, hop, lambda: own(execution.task, **arguments))
    return answer if isinstance(answer, Retry) else _told(exc, step)


def send_raw(execution: Any, exc: BaseException | None, delay: float, publish: Any) -> Any:
    """Run `publish`, a call of a task's retry; an error of publishing is told as `send` says."""
    stored = _store_retry(execution, exc)
    try:
        answer = publish()
    except Retry:
        _note_sent(execution, stored=stored)
        raise
    except Reject as rejected:
        if rejected is exc:
            raise  # Retries are used up, and the error to raise then is itself a Reject.
        reason = getattr(rejected, "reason", None)
        raise not_sent(execution, reason if isinstance(reason, BaseException) else rejected, delay) from exc
    _note_sent(execution, stored=stored)
    return answer


def own_headers(request: Any) -> dict[str, Any]:
    """The message's custom headers, without ours that change and without the broker's notes about deaths."""
    return {
        name: value
        for name, value in (request.headers or {}).items()
        if name not in _OURS and not name.startswith(("x-death", "x-first-death", "x-last-death"))
    }


def _put_back(
    execution: Any, step: Step, hop: float, exc: BaseException | None, headers: Mapping[str, Any]
) -> Retry:
    """The same attempt later: unlike a retry it does not count."""
    request = execution.request
    signature = execution.task.signature_from_request(
        request, None, None, countdown=hop, retries=request.retries, headers=headers
    )
    stored = _store_retry(execution, exc)
    try:
        if not request.is_eager:
            signature.apply_async()
    # Whatever keeps the message from being sent, the old one must not be acknowledged for it.
    except Exception as error:
        raise not_sent(execution, error, hop) from exc
    _note_sent(execution, stored=stored)
    return _told(exc, step, is_eager=request.is_eager, sig=signature)


def _store_retry(execution: Any, exc: BaseException | None) -> bool:
    """Whether the state is stored, or could not be, so that Celery is not to store it later."""
    request, task = execution.request, execution.task
    ignored = vars(request).get("ignore_result")
    if request.is_eager or execution.rehearsed:
        return False
    if (task.ignore_result if ignored is None else ignored) and not task.store_errors_even_if_ignored:
        return False
    backend = task.backend
    _guard(backend)
    try:
        text = None if exc is None else "".join(traceback.format_exception(exc))
        backend.mark_as_retry(request.id, exc, text, request=request)
    except SoftTimeLimitExceeded:
        raise
    # A result backend that is down keeps no work from being tried again.
    except Exception:
        logger.exception("the retry of task %s[%s] could not be stored", task.name, request.id)
    return True


def _note_sent(execution: Any, *, stored: bool) -> None:
    execution.note_sent()
    if stored:
        vars(execution.request)[_STORED] = True


def _guard(backend: Any) -> None:
    """From now on this backend stores no retry of a request whose retry was stored before it was sent."""
    if "mark_as_retry" in vars(backend):
        return
    own = backend.mark_as_retry

    def mark_as_retry(task_id: Any, exc: Any, traceback: Any = None, request: Any = None, **more: Any) -> Any:
        if request is not None and getattr(request, "__dict__", {}).get(_STORED):
            return None
        return own(task_id, exc, traceback=traceback, request=request, **more)

    backend.mark_as_retry = mark_as_retry


def _told(exc: Any, step: Step, **more: Any) -> Retry:
    when: Any = step.delay
    return Retry(exc=exc, when=when, **more)


def not_sent(execution: Any, error: Any, delay: float) -> Exception:
    """What to raise where a retry was not sent: RetryNotSent, or RetryUnpublished where it never can be."""
    if execution.task.acks_late and not _is_unfit(error):
        execution.unsent = RetryNotSent(delay)
    else:
        # No wait makes this message fit to be sent; or, acknowledged early, it is on no broker any more.
        execution.unsent = RetryUnpublished(error, requeue=False)
    return execution.unsent  # type: ignore[no-any-return]


def _is_unfit(error: BaseException) -> bool:
    """Whether the message itself cannot be sent: serialised, accepted as arguments, or taken in its size.
    Anything else says something of the broker or the way to it."""
    if isinstance(error, (TypeError, ValueError, ContentDisallowed)):
        return True
    return project_classifier().judge(error).rule in ("broker.content", "broker.limit")
