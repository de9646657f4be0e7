"""Errors that dlq raises on purpose."""

from __future__ import annotations

from hardening.core.errors import HardeningError

__all__ = [
    "BrokerUnreachable",
    "CannotSeal",
    "CannotUnseal",
    "DlqError",
    "NoDestination",
    "NotRepaired",
    "UnknownQueue",
]


class DlqError(HardeningError):
    """Root of the errors of dlq."""


class CannotSeal(DlqError):
    """A payload cannot be encrypted although DLQ["ENCRYPTION_KEYS"] asks for it; nothing was stored."""


class CannotUnseal(DlqError):
    """A stored payload cannot be read with the keys that are set now."""


class NoDestination(DlqError):
    """A letter names no queue to send it to."""


class UnknownQueue(DlqError):
    """The queue that a replay should go to is none that the Celery app knows; nothing was changed."""


class BrokerUnreachable(DlqError):
    """The broker takes nothing now: trying the next letter would only wait again."""


class NotRepaired(DlqError):
    """The message that was given instead of a letter's own cannot be right. The letter stays open."""
