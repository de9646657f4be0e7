"""Publishes what follows a failed attempt: a retry, or the same attempt put back for a while."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery.exceptions import Reject, Retry
from kombu.exceptions import ContentDisallowed

from hardening.classification.current import project_classifier
from hardening.core.identity import (
    ATTEMPTS_HEADER,
    DELAYED_HEADER,
    DEPENDENCY_HEADER,
    DUE_HEADER,
    FIRST_HEADER,
    PARKED_HEADER,
)
from hardening.history import attempt_number
from hardening.returning import RetryNotSent

from .aftermath import Next, Step, headers_for

__all__ = ["RetryUnpublished", "not_sent", "own_headers", "send", "send_raw"]

_OURS = frozenset(
    {ATTEMPTS_HEADER, DELAYED_HEADER, DEPENDENCY_HEADER, DUE_HEADER, FIRST_HEADER, PARKED_HEADER}
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
    try:
        answer = publish()
    except Retry:
        execution.note_sent()
        raise
    except Reject as rejected:
        if rejected is exc:
            raise  # Retries are used up, and the error to raise then is itself a Reject.
        reason = getattr(rejected, "reason", None)
        raise not_sent(execution, reason if isinstance(reason, BaseException) else rejected, delay) from exc
    execution.note_sent()
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
    try:
        if not request.is_eager:
            signature.apply_async()
    # Whatever keeps the message from being sent, the old one must not be acknowledged for it.
    except Exception as error:
        raise not_sent(execution, error, hop) from exc
    execution.note_sent()
    return _told(exc, step, is_eager=request.is_eager, sig=signature)


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
