"""The one error tree: every error that this project raises on purpose."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["HardeningError", "Permanent", "PoisonTask", "RetryLater", "SinkUnavailable", "Transient"]


class HardeningError(Exception):
    """Root of every error that celery-hardening raises on purpose."""


class Permanent(HardeningError):
    """Raised by a task whose work can never succeed: it is kept as a dead letter at this attempt.

    No retry policy overrules it: neither `autoretry_for` nor `self.retry(exc=...)` sends the task
    again.
    """


class Transient(HardeningError):
    """Raised by a task whose work may succeed later: it is tried again as its retry policy says.

    At the policy's limit it is kept as a dead letter. No rule overrules it.
    """


class RetryLater(Transient):
    """Raised by a task that knows when the next try makes sense: in so many seconds, or at a time.

    `when` is a number of seconds from now, or a datetime (a naive one is UTC). The wait counts as an
    attempt, is never shorter than asked for, and must end within the policy's `max_age`. Raises
    TypeError for anything else, ValueError for a negative or endless number.
    """

    def __init__(self, when: float | datetime, message: str = "") -> None:
        if isinstance(when, bool) or not isinstance(when, (int, float, datetime)):
            raise TypeError(f"RetryLater takes seconds or a datetime, not {type(when).__name__}")
        if not isinstance(when, datetime) and not 0 <= when < float("inf"):
            raise ValueError(f"RetryLater takes a finite number of seconds from 0 on, not {when!r}")
        self.when = when
        super().__init__(when, message)

    def __str__(self) -> str:
        when = self.when.isoformat() if isinstance(self.when, datetime) else f"in {self.when:g} s"
        message = self.args[1] if len(self.args) > 1 else ""
        return f"{message} (again {when})" if message else f"again {when}"

    def seconds(self, now: datetime) -> float:
        """How long to wait from `now` on; 0 for a time that has passed."""
        if not isinstance(self.when, datetime):
            return float(self.when)
        when = self.when if self.when.tzinfo else self.when.replace(tzinfo=UTC)
        return max(0.0, (when - now).total_seconds())


class PoisonTask(HardeningError):
    """The result of a task that was given up because each of its starts ended with its process."""


class SinkUnavailable(HardeningError):
    """A dead-letter sink could not keep a letter; the letter exists nowhere yet."""
