"""Patience: when somebody may wait for the result backend, and when it is left alone. Pure."""

from __future__ import annotations

from math import inf

__all__ = ["LEFT_ALONE_LONGEST", "LEFT_ALONE_SECONDS", "Patience"]

LEFT_ALONE_SECONDS = 1.0
LEFT_ALONE_LONGEST = 30.0


class Patience:
    """Of those who tell one backend. After a silence it is left alone, then less and less often asked."""

    def __init__(self) -> None:
        self._until = 0.0
        self._pause = LEFT_ALONE_SECONDS

    def allows(self, now: float) -> bool:
        """Whether it is worth waiting for an answer."""
        return now >= self._until

    @property
    def seconds_from(self) -> float:
        """The time from which on it is asked again; infinite while an answer is waited for."""
        return self._until

    def lost(self) -> None:
        """An answer is waited for too long, or it is tried again: nobody else waits until that has ended."""
        self._until = inf

    def failed(self, now: float) -> None:
        """It gave no answer: left alone for a while."""
        self._until = now + self._pause
        self._pause = min(self._pause * 2, LEFT_ALONE_LONGEST)

    def answered(self) -> None:
        """It answers."""
        self._until = 0.0
        self._pause = LEFT_ALONE_SECONDS
