"""The one error tree: every error that this project raises on purpose."""

from __future__ import annotations

__all__ = ["HardeningError", "Permanent", "SinkUnavailable"]


class HardeningError(Exception):
    """Root of every error that celery-hardening raises on purpose."""


class Permanent(HardeningError):
    """Raised by a task whose work can never succeed: it is kept as a dead letter at this attempt.

    No retry policy overrules it: neither `autoretry_for` nor `self.retry(exc=...)` sends the task
    again.
    """


class SinkUnavailable(HardeningError):
    """A dead-letter sink could not keep a letter; the letter exists nowhere yet."""
