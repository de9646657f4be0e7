"""Messages whose retry could not be published: held unacknowledged for a while, then given back.

The argument. A retry is a new message, sent before the old one is acknowledged. Where the broker takes
no new message, the old one is all there is: it stays unacknowledged, and the worker's parent gives it
back when the retry would have been due, or as soon afterwards as the broker takes it. Dying meanwhile
loses nothing, the broker gives it back by itself. It keeps its prefetch credit, so that a worker whose
every retry fails takes no more messages than it may prefetch: no hot loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from celery import Celery
from celery.exceptions import Ignore

from .history import class_path
from .poison.returned import note_returned

__all__ = ["FIRST_SEEN", "RetryNotSent", "Returning", "returning_for"]

logger = logging.getLogger("hardening")

FIRST_SEEN: dict[str, float] = {}
"""Since when messages go back, by task id: those of other producers do not say how old they are, and would
come back for ever. Of this process only, and bounded."""

_MOST_SEEN = 10_000
SHORTEST_WAIT_SECONDS = 2.0
LONGEST_WAIT_SECONDS = 60.0


class RetryNotSent(Ignore):
    """The retry of a task could not be published. Tells the worker's parent when to give the message back.

    An Ignore, so that Celery reports no outcome: the message is unacknowledged and the work pending.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return f"the retry could not be published; the message comes back in about {self.seconds:.0f} s"


@dataclass(slots=True)
class _Kept:
    request: Any
    due: float


class Returning:
    """The messages of one worker that wait to be given back. Used from the worker's main loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: list[_Kept] = []

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, request: Any, seconds: float) -> None:
        """Give the request's message back in `seconds`, within the bounds above."""
        wait = min(max(seconds, SHORTEST_WAIT_SECONDS), LONGEST_WAIT_SECONDS)
        self._kept.append(_Kept(request, self._clock() + wait))
        FIRST_SEEN.setdefault(request.id, time.time())
        if len(FIRST_SEEN) > _MOST_SEEN:
            del FIRST_SEEN[next(iter(FIRST_SEEN))]

    def return_due(self) -> None:
        """Give back what is due. What the broker does not even take back is tried again later."""
        now = self._clock()
        due = [kept for kept in self._kept if kept.due <= now]
        # Taken off first: on gevent another turn may begin while a rejection is being written.
        self._kept = [kept for kept in self._kept if kept.due > now]
        for kept in due:
            if not _given_back(kept.request):
                self.keep(kept.request, SHORTEST_WAIT_SECONDS)


def _given_back(request: Any) -> bool:
    """Whether nothing is left to do.

    Past the request's own `reject`: that puts the call into the worker's loop, where a refusal by
    Redis, which gives a message back by writing it, either ends the connection or is only logged.
    """
    message = request.message
    about = {"task_id": request.id, "task_name": request.name}
    deliveries = getattr(message.channel, "qos", None)  # kombu's own, for brokers that do not count them.
    if message.acknowledged or (deliveries is not None and not _has(deliveries, message.delivery_tag)):
        logger.info(
            "task %s[%s] went back to the broker with its connection", request.name, request.id, extra=about
        )
        return True
    note_returned(request.app, [message], judged=True)
    try:
        message.reject(requeue=True)
    # Redis may refuse it in any way that it has; the message is safe meanwhile.
    except Exception as exc:
        if deliveries is None and isinstance(exc, request.connection_errors):
            return True  # As above, by the broker itself.
        logger.warning(
            "task %s[%s] cannot go back to the broker now, and is tried again: %s",
            request.name,
            request.id,
            class_path(type(exc)),  # Its text may show the message.
            extra=about,
        )
        return False
    request.acknowledged = True
    logger.warning(
        "task %s[%s] goes back to the broker: its retry could not be published",
        request.name,
        request.id,
        extra=about,
    )
    return True


def _has(deliveries: Any, tag: Any) -> bool:
    try:
        deliveries.get(tag)
    except KeyError:
        return False
    return True


_all: WeakKeyDictionary[Celery, Returning] = WeakKeyDictionary()


def returning_for(app: Celery) -> Returning:
    """The list of an app's worker in this process."""
    found = _all.get(app)
    if found is None:
        found = _all[app] = Returning()
    return found
