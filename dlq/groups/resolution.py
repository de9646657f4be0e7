"""Whether a letter speaks against a group that was resolved. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

__all__ = ["Resolution"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """When a group was resolved, in which release if in one, and since when that one has run."""

    at: datetime
    release: str = ""
    ran_at: datetime | None = None

    def is_contradicted_by(self, *, failed_at: datetime, release: str) -> bool:
        """Whether a letter says that its cause is not gone.

        One that failed before says nothing new. Where the group was resolved in a release, nor does one of
        another release, unless it failed after that one had run: until then it fails as it always did.
        """
        if failed_at <= self.at:
            return False
        if not self.release or release == self.release:
            return True
        return self.ran_at is not None and failed_at > self.ran_at
