"""Which reason code an error gives a letter when no retry was ever decided upon. Pure."""

from __future__ import annotations

from celery.exceptions import MaxRetriesExceededError, Reject, SoftTimeLimitExceeded, TimeLimitExceeded

from .core.errors import Permanent
from .core.reasons import Reason
from .retries.sending import RetryUnpublished

__all__ = ["reason_for", "underlying"]


def reason_for(exc: BaseException) -> Reason:
    """The reason code for an error that ended a task outside the retry policy."""
    if isinstance(exc, Permanent):
        return Reason.PERMANENT
    if isinstance(exc, RetryUnpublished):
        return Reason.RETRY_UNPUBLISHED
    if isinstance(exc, Reject):
        return Reason.REJECTED
    if isinstance(exc, MaxRetriesExceededError):
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
