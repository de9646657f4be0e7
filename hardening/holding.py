"""Messages whose letter no store took: held unacknowledged, tried again with back-off.

Dying while holding loses nothing: the message was never acknowledged, so the broker gives it back.
A held message keeps its prefetch credit. A worker that cannot keep the letters of as many messages
as it may prefetch therefore takes no more of them: nothing gets worse while no store is there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from celery import Celery

from .capture import LetterNotKept, keeper_for
from .core.letter import DeadLetter

__all__ = ["Holding", "Settled", "holding_for"]

logger = logging.getLogger("hardening")

FIRST_WAIT_SECONDS = 2.0
LONGEST_WAIT_SECONDS = 60.0


class Settled(Protocol):
    """What answers for a message: a request, or a message of which none was made."""

    def settle_held(self, error_class: str, message: str, /) -> Any:
        """The letter is kept at last: report what there is to report, and acknowledge."""
        ...


@dataclass(slots=True)
class _Held:
    owner: Settled
    letter: DeadLetter
    wait_seconds: float
    due: float


class Holding:
    """The held messages of one worker. Not thread-safe: used from the worker's main loop."""

    def __init__(
        self, keep: Callable[[DeadLetter], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._keep = keep
        self._clock = clock
        self._held: list[_Held] = []
        self._busy = False

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, owner: Settled, letter: DeadLetter) -> None:
        """Take over a message that must not be acknowledged before its letter is kept. Refers to its owner,
        and with it to the message, which is no stray as long as it is held."""
        self._held.append(_Held(owner, letter, FIRST_WAIT_SECONDS, self._clock() + FIRST_WAIT_SECONDS))

    def retry_due(self) -> None:
        """Try again to keep what is due; settle what was kept. One failure ends the turn."""
        if self._busy:  # On gevent a reconnect starts a new timer while the old one waits for a store.
            return
        self._busy = True
        try:
            self._retry_due()
        finally:
            self._busy = False

    def _retry_due(self) -> None:
        now = self._clock()
        for held in [h for h in self._held if h.due <= now]:
            try:
                self._keep(held.letter)
            except LetterNotKept:
                held.wait_seconds = min(held.wait_seconds * 2, LONGEST_WAIT_SECONDS)
                held.due = self._clock() + held.wait_seconds
                return
            self._held.remove(held)
            last = held.letter.last_attempt
            held.owner.settle_held(last.error_class, last.message)


_holdings: WeakKeyDictionary[Celery, Holding] = WeakKeyDictionary()


def holding_for(app: Celery) -> Holding:
    """The holding of an app's worker in this process."""
    found = _holdings.get(app)
    if found is None:
        found = _holdings[app] = Holding(keeper_for(app).keep_and_close)
    return found
