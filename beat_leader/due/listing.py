"""Due, from a function that tells the next due time: by asking it again and again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .values import Due

__all__ = ["listed"]


def listed(
    following: Callable[[float], float | None],
    after: float,
    until: float,
    keep: int,
    *,
    most: int | None = None,
) -> Due:
    """Those in (after, until]. After `most` of them it goes on an hour before the end."""
    times: deque[float] = deque()
    earlier = 0
    first = last = None
    found = following(after)
    while found is not None and found <= until:
        times.append(found)
        if len(times) > keep:
            last = times.popleft()
            first = last if first is None else first
            earlier += 1
        if most is not None and earlier + len(times) == most:
            found = max(found, until - 3600)
        found = following(found)
    return Due(times=tuple(times), earlier_count=earlier, earlier_first=first, earlier_last=last)
