"""What can go wrong with a process or server that a test started."""

from __future__ import annotations

from hardening.core.errors import HardeningError


class ProcessError(HardeningError):
    """A started process did not do what was asked of it; the message ends with its last log lines."""


class ProcessEnded(ProcessError):
    """The process is gone, so what was awaited can no longer come."""


class ProcessTimeout(ProcessError):
    """What was awaited did not come in time."""


class ServerMissing(HardeningError):
    """This machine has no program for the server; the message says what was looked for and the remedy."""
