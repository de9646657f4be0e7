"""The boot step of the worker's parent: what is held, what goes back, and the periodic duties of the apps."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from celery import bootsteps

from .chords import chords_for
from .core.duties import Duty, duties
from .delayed.release import RELEASE_EVERY_SECONDS, release_on
from .holding import holding_for
from .poison.memory import SAMPLED_EVERY_SECONDS
from .poison.watch import poison_for
from .returning import returning_for
from .telling.teller import teller_for
from .twins.watch import twins_for

__all__ = ["Upkeep"]

logger = logging.getLogger("hardening")

HELD_EVERY_SECONDS = 1.0


class Upkeep(bootsteps.StartStopStep):
    """Runs on the consumer's timer; stopped and started again with each connection."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._entries: list[Any] = []
        self._lasting: list[Any] = []

    def start(self, consumer: Any) -> None:
        """Put everything on the timer."""
        app = consumer.app
        holding = holding_for(app)
        returning = returning_for(app)
        twins = twins_for(app)
        poison = poison_for(app)
        repeat = consumer.timer.call_repeatedly
        self._entries = [
            repeat(HELD_EVERY_SECONDS, _guarded("holding", holding.retry_due)),
            repeat(HELD_EVERY_SECONDS, _guarded("returning", returning.return_due)),
            repeat(HELD_EVERY_SECONDS, _guarded("chords", chords_for(app).settle)),
            repeat(RELEASE_EVERY_SECONDS, _guarded("delayed tasks", release_on(consumer.timer, app))),
            repeat(HELD_EVERY_SECONDS, _guarded("copies held back", twins.held.ask_again)),
            repeat(HELD_EVERY_SECONDS, _guarded("deaths of tasks", poison.upkeep)),
            repeat(SAMPLED_EVERY_SECONDS, _guarded("memory", partial(poison.sample, consumer.pool))),
        ]
        self._take_off_lasting()
        teller_for(app).start()
        self._lasting = [repeat(twins.renew_every, _guarded("twins", twins.renew))]
        self._entries += [
            repeat(duty.every_seconds, _guarded(duty.name, _run(duty, app))) for duty in duties()
        ]

    def stop(self, consumer: Any) -> None:
        """Take everything off it that needs a connection. What runs keeps its marks until it has ended."""
        for entry in self._entries:
            entry.cancel()
        self._entries = []

    def shutdown(self, consumer: Any) -> None:
        """Take off the rest, and say what is told to nobody."""
        self._take_off_lasting()
        teller_for(consumer.app).close()

    def _take_off_lasting(self) -> None:
        for entry in self._lasting:
            entry.cancel()
        self._lasting = []


def _run(duty: Duty, app: Any) -> Any:
    return lambda: duty.run(app)


def _guarded(name: str, function: Any) -> Any:
    def run() -> None:
        try:
            function()
        # The outermost loop of a duty: a failure is logged, the next turn tries again.
        except Exception:
            logger.exception("the worker's duty %r failed; it is tried again at its next turn", name)

    return run
