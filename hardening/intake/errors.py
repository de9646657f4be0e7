"""The error of a message that never became a task: what its callers see, and its letter's attempt."""

from __future__ import annotations

from hardening.core.errors import HardeningError

__all__ = ["NotATask"]


class NotATask(HardeningError):
    """The message cannot be run. Its text says what is wrong with it, and quotes no argument."""
