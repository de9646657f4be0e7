"""When a release counts as running. Pure.

While releases are exchanged, workers of the old one still fail as they did, and take what is replayed. So a
release has run only when the others have fallen silent; but several releases may work side by side for good
(two services with one store), so this is not waited for without end.
"""

from __future__ import annotations

from datetime import datetime, timedelta

__all__ = ["HEARD_EVERY", "LONGEST", "SILENT_AFTER", "has_settled"]

HEARD_EVERY = timedelta(seconds=20)
"""How often a release that runs says so."""

SILENT_AFTER = timedelta(seconds=90)
"""After how long without a word no worker of a release is taken to run."""

LONGEST = timedelta(minutes=10)
"""How long others are waited for at most."""


def has_settled(*, first_at: datetime, others_last_at: datetime | None, now: datetime) -> bool:
    """Whether a release whose first worker was heard at `first_at` is the one that runs now."""
    if others_last_at is None or now - others_last_at >= SILENT_AFTER:
        return True
    return now - first_at >= LONGEST
