"""Copies that are held back: not run and not acknowledged, because the work is running. Asked again later.

A held message keeps its lease or its channel, and one prefetch credit more is asked for it, as Celery does
for one that is due later; beyond a number of them none, so that the worker ends up taking no more. Entries
lie in a list that the worker's upkeep reads and not on the timer, which Celery 5.6 clears with each lost
connection: on Redis a held message outlives its connection and must not be forgotten.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from celery.exceptions import InvalidTaskError
from kombu.exceptions import ContentDisallowed, DecodeError

from .here import is_ours

__all__ = ["HeldBack", "Kept"]

logger = logging.getLogger("hardening")

ASKED_EVERY_SECONDS = 2.0
MOST_CREDITS = 100
MOST_ASKED_AT_A_TURN = 20


@dataclass(slots=True)
class _Held:
    arrival: Any
    due: float
    qos: Any
    """The prefetch count that a credit was added to; each connection has its own. None: no credit."""

    told: bool = False
    asked: bool = False
    """Whether it goes through reception just now."""


class Kept(NamedTuple):
    """A message that is handed over, and the id of its task."""

    id: str
    message: Any


class HeldBack:
    """The held copies of one worker. Used from its main loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[int, _Held] = {}
        self._busy = False

    def __len__(self) -> int:
        return len(self._held)

    def has(self, message: Any) -> bool:
        """Whether it is held back."""
        return id(message) in self._held

    def credits(self, qos: Any) -> int:
        """How many credits were added to this prefetch count, to be taken back."""
        return sum(1 for held in list(self._held.values()) if held.qos is qos)

    def hold(self, arrival: Any, *, seconds: float | None = None) -> bool:
        """Hold a message back, or hold it on. Whether nobody has been told yet of its being held.

        With `seconds` it is asked so soon, and nobody needs to be told.
        """
        due = self._clock() + (ASKED_EVERY_SECONDS if seconds is None else seconds)
        known = self._held.get(id(arrival.message))
        if known is not None:
            known.due, known.asked = due, False
            first, known.told = not known.told, True
            return first
        held = self._held[id(arrival.message)] = _Held(arrival, due, None, told=seconds is None)
        self._credit(held)
        return True

    def let_go(self, message: Any) -> None:
        """It is held back no longer: it starts, is acknowledged, or is no longer ours."""
        held = self._held.pop(id(message), None)
        if held is not None and held.qos is not None and held.qos is held.arrival.consumer.qos:
            held.qos.decrement_eventually()

    def hand_over(self) -> list[Kept]:
        """Hold none any more: for a worker that stops, and gives them to others."""
        held, self._held = list(self._held.values()), {}
        return [
            Kept(str((each.arrival.message.headers or {}).get("id", "?")), each.arrival.message)
            for each in held
            if not each.arrival.message.acknowledged and is_ours(each.arrival.message, each.arrival.consumer)
        ]

    def ask_again(self) -> None:
        """Send what is due through reception once more; drop what the broker has given to others."""
        if self._busy:  # On gevent a reconnect starts a new timer while the old one waits for a store.
            return
        self._busy = True
        try:
            now = self._clock()
            due = [held for held in self._held.values() if held.due <= now]
            for held in due[:MOST_ASKED_AT_A_TURN]:
                self._ask(held)
        finally:
            self._busy = False

    def _ask(self, held: _Held) -> None:
        message, consumer = held.arrival.message, held.arrival.consumer
        if message.acknowledged or not is_ours(message, consumer):
            self.let_go(message)
            return
        self._credit(held)
        held.due, held.asked = self._clock() + ASKED_EVERY_SECONDS, True
        try:
            held.arrival.proceed()
        # As Celery does where it receives a message.
        except (InvalidTaskError, ContentDisallowed) as exc:
            consumer.on_invalid_task(None, message, exc)
        except DecodeError as exc:
            consumer.on_decode_error(message, exc)
        if held.asked and self._held.get(id(message)) is held:  # Nobody held it on, or anew.
            self.let_go(message)

    def _credit(self, held: _Held) -> None:
        """Ask for one message more, once on each connection."""
        qos = held.arrival.consumer.qos
        if qos is not None and held.qos is not qos and self.credits(qos) < MOST_CREDITS:
            qos.increment_eventually()
            held.qos = qos
