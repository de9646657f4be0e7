"""Releases what is due: every worker looks, at short intervals, and costs the store one question each time.

The store says when its next message is due. What others park after that is due a horizon later, so the next
look may wait for a quarter of the horizon; the rest of it is for clocks that differ.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from celery import Celery

from hardening.conf import load_settings
from hardening.core.errors import HardeningError
from hardening.effective import transport_of
from hardening.store import StoreUnavailable

from .publishing import Publisher
from .rules import DelayedRules
from .saying import Seldom
from .step import TRANSPORTS
from .store import DelayedStore, Publish, Turn, chosen_delayed_store

__all__ = ["RELEASE_EVERY_SECONDS", "Releasing", "release_on", "releasing_for"]

logger = logging.getLogger("hardening")

RELEASE_EVERY_SECONDS = 0.5
_LONGEST_REST_SECONDS = 3.0
_AFTER_ERROR_SECONDS = 5.0
_AT_ONCE = 200
_TURN_SECONDS = 0.25
"""A turn takes no further batch after that: the worker's loop has other work."""


class Releasing:
    """The turns of one worker."""

    def __init__(
        self,
        store: DelayedStore,
        publish: Publish,
        rules: DelayedRules,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._publish = publish
        self._rest = min(_LONGEST_REST_SECONDS, max(RELEASE_EVERY_SECONDS, rules.horizon / 4))
        self._clock = clock
        self._next_look = 0.0
        self._at_it = False
        self._complaint = Seldom(logger)

    def turn(self) -> bool:
        """Release what is due. True: there is more, and it is to be called again soon."""
        if self._at_it or self._clock() < self._next_look:
            return False  # On gevent a turn may begin while one waits for its store.
        self._at_it = True
        try:
            more = self._release()
        except Exception as exc:
            self._next_look = self._clock() + _AFTER_ERROR_SECONDS
            if not isinstance(exc, (StoreUnavailable, OSError)):
                logger.debug("delayed tasks could not be released", exc_info=True)
            self._complaint.warn("delayed tasks are not released now; it is tried again: %s", exc)
            return False
        finally:
            self._at_it = False
            self._store.pause()
        return more

    def _release(self) -> bool:
        until = self._clock() + _TURN_SECONDS
        while True:
            turn = self._store.release(self._publish, limit=_AT_ONCE)
            if turn.released:
                logger.info("%d delayed task(s) handed to the broker", turn.released)
            if not turn.released or turn.next_in != 0.0:
                break
            if self._clock() >= until:
                self._next_look = 0.0
                return True
        self._next_look = self._clock() + self._wait_after(turn)
        return False

    def _wait_after(self, turn: Turn) -> float:
        return self._rest if turn.next_in is None else min(self._rest, turn.next_in)


_all: WeakKeyDictionary[Celery, Releasing] = WeakKeyDictionary()


def releasing_for(app: Celery) -> Releasing | None:
    """The turns of an app's worker in this process; None where nothing is parked."""
    if transport_of(app) not in TRANSPORTS:
        return None
    found = _all.get(app)
    if found is None:
        rules = load_settings()[0].delayed_rules
        try:
            found = _all[app] = Releasing(chosen_delayed_store(app, rules), Publisher(app), rules)
        except HardeningError as exc:
            logger.warning("delayed tasks are not released: %s", exc)
    return found


def release_on(timer: Any, app: Celery) -> Callable[[], None]:
    """What a worker calls every RELEASE_EVERY_SECONDS."""

    def run() -> None:
        found = releasing_for(app)
        if found is not None and found.turn():
            timer.call_after(0.01, run)

    return run
