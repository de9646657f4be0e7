"""What became of each due time's task, written to its row by the workers that run it.

Nothing rests on it but what people see, and a schedule that must not overlap: it waits longer for an end that
nobody could write. So a store that does not answer is left alone for some seconds, and holds no task up. An
end that was not written stays open in the row; a dead letter tells of itself.

One thing must be written: the end of a message that came after its next due time, which leaves no dead letter
otherwise (see `hardening.core.superseded`). Where it cannot be, its letter is kept.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from hardening.core.apps import celery_app
from hardening.core.events import letter_kept, scheduled_began, scheduled_succeeded
from hardening.core.superseded import offer_superseded

from .choice import chosen_ticks
from .clock import steady
from .message import is_of
from .ticks import Outcome, TickStore, TicksUnavailable

__all__ = ["SUPERSEDED", "Outcomes", "watch_outcomes"]

logger = logging.getLogger("beat_leader")

SUPERSEDED = "expired: the next due time had come"

_LEFT_ALONE_SECONDS = 10.0


class Outcomes:
    """Safe in threads, greenlets and after a fork. Only `superseded` says whether it was written."""

    def __init__(self, ticks: TickStore | None = None) -> None:
        """Without a store, the one that is in force when something happens."""
        self._ticks = ticks
        self._left_alone_until = 0.0

    def began(self, *, scheduled: str, delivery_key: str, **_: Any) -> None:
        """Receives `scheduled_began`."""
        self._note(scheduled, delivery_key, Outcome.STARTED)

    def succeeded(self, *, scheduled: str, delivery_key: str, **_: Any) -> None:
        """Receives `scheduled_succeeded`."""
        self._note(scheduled, delivery_key, Outcome.SUCCEEDED)

    def died(self, *, scheduled: str, delivery_key: str, reason: str, **_: Any) -> None:
        """Receives `letter_kept`."""
        if scheduled:
            self._note(scheduled, delivery_key, Outcome.DEAD, str(reason))

    def superseded(self, scheduled: str, delivery_key: str) -> bool:
        """Whether its row says now that it expired, or ended otherwise before."""
        return self._note(scheduled, delivery_key, Outcome.CANCELLED, SUPERSEDED)

    def _note(self, scheduled: str, delivery_key: str, outcome: Outcome, detail: str = "") -> bool:
        if not is_of(scheduled, delivery_key) or steady() < self._left_alone_until:
            return False
        try:
            ticks = self._ticks or chosen_ticks(celery_app())
            return ticks.note(delivery_key, outcome, int(time.time() * 1000), detail)
        except TicksUnavailable as exc:
            self._left_alone_until = steady() + _LEFT_ALONE_SECONDS
            logger.warning(
                "what became of %s is not written down, nor of what ends within %g s: %s",
                scheduled,
                _LEFT_ALONE_SECONDS,
                exc,
            )
            return False


def watch_outcomes() -> None:
    """Connect it in this process, once."""
    outcomes = Outcomes()
    scheduled_began.connect(outcomes.began, weak=False, dispatch_uid="beat_leader.outcomes")
    scheduled_succeeded.connect(outcomes.succeeded, weak=False, dispatch_uid="beat_leader.outcomes")
    letter_kept.connect(outcomes.died, weak=False, dispatch_uid="beat_leader.outcomes")
    offer_superseded(outcomes.superseded)
