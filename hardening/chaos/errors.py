"""What can go wrong with a chaos run itself."""

from __future__ import annotations

from hardening.core.errors import HardeningError

__all__ = ["ChaosError", "Unsafe"]


class ChaosError(HardeningError):
    """The run cannot go on; the message says why, for whoever started it."""


class Unsafe(ChaosError):
    """The project would be connected to something that the kit did not start. Nothing has been sent."""
