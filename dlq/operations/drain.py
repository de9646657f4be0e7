"""How fast the consumers of a queue get on, seen from its length and what we sent to it."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from uuid import UUID

from .pace import Look, share_rate
from .publishing import Publisher

__all__ = ["Gauge", "gauge_of"]

_EVERY_SECONDS = 1.0
_TOO_OLD_SECONDS = 60.0
_FIRST_RATE = 1.0
_MOST_GAUGES = 100


class Gauge:
    """The rate for a share of each queue's drain rate, looked at once a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looks: dict[str, tuple[Look, float]] = {}

    def rate(self, publisher: Publisher, queue: str, percent: float, *, sent: int) -> float:
        """Messages a second. A queue that cannot be looked at keeps its rate."""
        now = self._clock()
        known = self._looks.get(queue)
        if known is not None and now - known[0].at < _EVERY_SECONDS:
            return known[1]
        length = publisher.length_of(queue)
        rate = known[1] if known is not None else _FIRST_RATE
        if length is None:
            return rate
        look = Look(at=now, length=length, sent=sent)
        if known is not None and now - known[0].at < _TOO_OLD_SECONDS:
            rate = share_rate(percent, before=known[0], now=look, rate=rate)
        self._looks[queue] = (look, rate)
        return rate


_gauges: OrderedDict[UUID, Gauge] = OrderedDict()


def gauge_of(operation_id: UUID) -> Gauge:
    """The one of this process: a runner lives for a turn, and what a queue drains shows from turn to turn."""
    gauge = _gauges.pop(operation_id, None) or Gauge()
    _gauges[operation_id] = gauge
    while len(_gauges) > _MOST_GAUGES:
        _gauges.popitem(last=False)
    return gauge
