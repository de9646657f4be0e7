"""The port for a schedule's message that came too late: whose next due time has come, and who records it so.

Such a message leaves no dead letter: an hour without workers would leave thousands that nobody replays. Its
end must be recorded, all the same, before it is acknowledged. A retry is another matter: that work began and
failed, which its letter tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .identity import BEAT_HEADER, SUPERSEDED_HEADER, identity_of

__all__ = ["offer_superseded", "recorded_as_superseded"]

_offered: list[Callable[[str, str], bool]] = []


def offer_superseded(record: Callable[[str, str], bool]) -> None:
    """`record` gets the value of BEAT_HEADER and the delivery key, and answers whether that is durable now.
    It is asked in a worker's main loop: it must be short."""
    _offered[:] = [record]


def recorded_as_superseded(headers: Mapping[str, Any], task_id: str) -> bool:
    """For a message that expired: False where a letter is to be kept. Never raises what `record` raises."""
    if not _offered or not headers.get(SUPERSEDED_HEADER) or not headers.get(BEAT_HEADER):
        return False
    if headers.get("retries"):
        return False
    try:
        return _offered[0](str(headers[BEAT_HEADER]), identity_of(headers, task_id).delivery_key)
    # Whatever a store raises: its letter is kept then.
    except Exception:
        return False
