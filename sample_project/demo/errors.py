"""What can go wrong with the demo itself."""

from __future__ import annotations


class DemoError(RuntimeError):
    """The demo cannot go on; the message says why, for whoever started it."""
