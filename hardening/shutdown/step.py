"""The boot step that gives a worker its drain."""

from __future__ import annotations

import logging
from typing import Any

from celery import bootsteps
from celery.worker import state

from hardening.conf import load_settings
from hardening.poison.returned import note_returned
from hardening.poison.watch import poison_for

from .drain import Drain, drain_with
from .handlers import lead_to
from .pools import hands_on
from .request import still_open

__all__ = ["Drainage"]

logger = logging.getLogger("hardening")

TURN_SECONDS = 0.25


class Drainage(bootsteps.StartStopStep):
    """Starts with each connection, before anything is consumed."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._drain: Drain | None = None
        self._entry: Any = None

    def include_if(self, consumer: Any) -> bool:
        """Only on pools that we know."""
        return hands_on(consumer.pool) is not None

    def start(self, consumer: Any) -> None:
        """Install the handlers, once; look for what was asked on the loop's timer."""
        if self._drain is None:
            hands = hands_on(consumer.pool)
            if hands is None or consumer.controller is None:
                return
            self._drain = Drain(consumer.controller, hands)
            drain_with(self._drain)
            lead_to(self._drain, grace=load_settings()[0].shutdown_rules.grace)
        self._drain.connected(consumer)
        if not getattr(consumer.pool, "is_green", False):  # There a greenlet of its own makes the turns.
            self._entry = consumer.timer.call_repeatedly(TURN_SECONDS, self._turn)

    def stop(self, consumer: Any) -> None:
        """The connection is gone, or the worker stops."""
        flags: Any = state
        asked = self._drain is not None and self._drain.asked
        if asked or any(
            flag is not None and flag is not False for flag in (flags.should_stop, flags.should_terminate)
        ):
            # What no drain has given back goes back with its channel: by plan, whether it runs or not.
            note_returned(consumer.app, [each.message for each in still_open()], judged=True)
            poison_for(consumer.app).stops()
        if self._drain is not None:
            self._drain.disconnected()
        if self._entry is not None:
            self._entry.cancel()
            self._entry = None

    def _turn(self) -> None:
        if self._drain is None or not self._drain.asked:
            return
        try:
            self._drain.turn()
        # The loop must live: the next turn tries again.
        except Exception:
            logger.exception("a turn of the drain failed")
