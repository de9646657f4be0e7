"""The step of reception about messages that may have a twin. Nobody alive runs what it lets pass."""

from __future__ import annotations

from typing import Any

from hardening.shutdown.drain import SOURCES

from .watch import Twins, twins_for
from .work import may_have_twin

__all__ = ["prepare"]


class TwinStep:
    """Asks the twins of this worker about redelivered messages and replays."""

    def __init__(self, twins: Twins) -> None:
        self._twins = twins

    def concerns(self, message: Any) -> bool:
        """Redelivered, a replay, or a retry of one of them."""
        return may_have_twin(message)

    def take(self, arrival: Any) -> bool:
        """Whether it is held back, adopted, or done."""
        read_news = getattr(arrival.consumer, "read_lease_news", None)
        if read_news is not None:
            read_news()  # That the lease of the other copy was lost may be known here, and not told yet.
        return self._twins.receive(arrival)


def prepare(consumer: Any) -> TwinStep:
    """The step of a worker."""
    twins = twins_for(consumer.app)
    twins.is_named(consumer.hostname)
    if twins.held.hand_over not in SOURCES:
        SOURCES.append(twins.held.hand_over)
    return TwinStep(twins)
