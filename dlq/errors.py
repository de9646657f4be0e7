"""Errors that dlq raises on purpose."""

from __future__ import annotations

from collections.abc import Mapping

from hardening.core.errors import HardeningError

__all__ = [
    "BrokerUnreachable",
    "CannotSeal",
    "CannotUnseal",
    "DlqError",
    "NoDestination",
    "NotEdited",
    "NotRepaired",
    "NotRerun",
    "OwnApproval",
    "UnknownQueue",
    "WrongCount",
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


class NotEdited(DlqError):
    """Arguments that cannot be sent in place of a letter's own. `errors` says why, by the name of each."""

    def __init__(self, text: str, errors: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.errors: Mapping[str, str] = errors or {}


class NotRerun(DlqError):
    """A chord that cannot be run again as a whole, and why. Nothing was changed."""


class OwnApproval(DlqError):
    """Who made an operation must not be who approves it; nothing was changed."""


class WrongCount(DlqError):
    """The number that was typed in is not how many letters would be deleted; nothing was."""

    def __init__(self, expected: int) -> None:
        super().__init__(f"{expected} letters would be deleted, and another number was confirmed")
        self.expected = expected
