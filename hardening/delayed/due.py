"""When a message is due, read as Celery's own strategy reads it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from celery.utils.time import maybe_iso8601, maybe_make_aware, timezone

__all__ = ["due_of", "has_expired", "moment_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def due_of(eta: Any, app: Any) -> float | None:
    """Seconds since 1970; None for what is no time, or none that Celery can use: Celery says so itself."""
    moment = moment_of(eta, app)
    if moment is None:
        return None
    try:
        if app.uses_utc_timezone():
            moment = timezone.to_system(moment)
        return (moment - _EPOCH).total_seconds()
    except (OverflowError, ValueError, OSError):
        return None


def has_expired(expires: Any, app: Any, now: float) -> bool:
    """Whether it is too late for a message, or nobody can say until when it is not."""
    if not expires:
        return False
    moment = moment_of(expires, app)
    return moment is None or (moment - _EPOCH).total_seconds() < now


def moment_of(value: Any, app: Any) -> datetime | None:
    """A time as Celery reads it, aware; None for what is none."""
    try:
        moment = maybe_iso8601(value)
        return None if moment is None else maybe_make_aware(moment, app.conf.timezone)
    # Whatever a producer put there, and in whatever way it is none: Celery refuses the message.
    except Exception:
        return None
