"""Which reason code an error gives a letter. Pure."""

from __future__ import annotations

from celery.exceptions import MaxRetriesExceededError, Reject, SoftTimeLimitExceeded, TimeLimitExceeded

from .core.errors import Permanent
from .core.reasons import Reason
from .task import RetryUnpublished

__all__ = ["reason_for", "underlying"]


def reason_for(exc: BaseException, *, exhausted: bool) -> Reason:
    """The reason code for an error that left the body. `exhausted`: a retry was refused before it."""
    if isinstance(exc, Permanent):
        return Reason.PERMANENT
    if isinstance(exc, RetryUnpublished):
        return Reason.RETRY_UNPUBLISHED
    if isinstance(exc, Reject):
        return Reason.REJECTED
    if exhausted or isinstance(exc, MaxRetriesExceededError):
        return Reason.RETRIES_EXHAUSTED
    if isinstance(exc, (SoftTimeLimitExceeded, TimeLimitExceeded)):
        return Reason.TIME_LIMIT
    return Reason.ERROR


def underlying(exc: BaseException) -> BaseException:
    """The error that an operator wants to see: what was behind Celery's own wrapper."""
    if isinstance(exc, (MaxRetriesExceededError, RetryUnpublished)):
        return exc.__cause__ or exc.__context__ or exc
    reason = getattr(exc, "reason", None)
    if isinstance(exc, Reject) and isinstance(reason, BaseException):
        return reason
    return exc
