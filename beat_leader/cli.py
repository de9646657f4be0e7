"""How the beat_leader_* commands print times."""

from __future__ import annotations

from datetime import UTC, datetime

from django.utils.timezone import get_current_timezone

__all__ = ["moment"]


def moment(seconds: float) -> str:
    """Seconds since 1970 in the site's time zone."""
    return datetime.fromtimestamp(seconds, UTC).astimezone(get_current_timezone()).isoformat(" ", "seconds")
