"""What this very worker knows without asking: which requests it runs, and what has succeeded in it."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from celery.worker import state

from .records import SUCCESS_KEPT_SECONDS
from .work import Work, task_id_of

__all__ = [
    "Successes",
    "copy_of",
    "has_succeeded_lately",
    "is_leased",
    "is_ours",
    "is_severed",
    "request_of",
    "succeeded",
    "unfinished",
]

_MOST_SUCCESSES = 1000


def unfinished() -> Iterator[Any]:
    """The requests of this worker that hold a message."""
    seen = set()
    waiting = getattr(state, "scheduled_requests", ())  # Celery 5.6 does not list them.
    for request in chain(
        tuple(state.active_requests),
        tuple(state.reserved_requests),
        tuple(waiting),
        tuple(state.requests.values()),
    ):
        if id(request) not in seen and not request.acknowledged:
            seen.add(id(request))
            yield request


def is_leased(message: Any) -> bool:
    """Whether this worker holds a message by a lease on Redis."""
    return getattr(message.channel, "holdings", None) is not None


def request_of(message: Any) -> Any | None:
    """The unfinished request of this very message."""
    tag, task_id = message.delivery_tag, task_id_of(message)
    for request in unfinished():
        own = request.message
        if own is message or (request.id == task_id and own.delivery_tag == tag):
            return request
    return None


def copy_of(work: Work, message: Any, consumer: Any) -> Any | None:
    """An unfinished request of the same work that has another message.

    One that does not run yet, and whose message is with others, never will: Celery drops it with its
    connection, and Celery 5.6 lists it all the same.
    """
    for request in unfinished():
        other = request.id == work.task_id and request.message is not message
        if not other or Work.of(request.message).digest != work.digest:
            continue
        if request.time_start or is_ours(request.message, consumer):
            return request
    return None


def has_succeeded_lately(task_id: object) -> bool:
    """Whether a task of this id succeeded in this worker, as Celery remembers it."""
    return isinstance(task_id, str) and task_id in state.successful_requests


def succeeded(request: Any) -> bool:
    """Whether the acknowledgement that is due now is that of a success: nothing else was reported of it."""
    return bool(request.time_start and request.task.acks_late and not request.ended_otherwise)


def dies_with_channel(message: Any) -> bool:
    """Whether the broker gives it to others when its channel dies, as RabbitMQ does."""
    return hasattr(message.channel, "is_open")


def is_severed(message: Any) -> bool:
    """Whether that has happened: nobody takes its acknowledgement any more."""
    return not getattr(message.channel, "is_open", True)


def is_ours(message: Any, consumer: Any) -> bool:
    """Whether the broker still takes an acknowledgement of it from this worker."""
    holdings = getattr(message.channel, "holdings", None)  # Of leases: they outlive channels.
    if holdings is not None:
        return bool(holdings.is_ours(message.delivery_tag))
    deliveries = getattr(message.channel, "qos", None)  # kombu's own, for brokers that do not count them.
    if deliveries is not None:
        try:
            deliveries.get(message.delivery_tag)
        except KeyError:
            return False
        return True
    current = getattr(consumer.task_consumer, "channel", None)
    return message.channel is current and not is_severed(message)


class Successes:
    """The last works that succeeded in this worker, by digest. Bounded; each is forgotten in time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at: OrderedDict[str, tuple[float, Work]] = OrderedDict()

    def __contains__(self, work: Work) -> bool:
        at = self._at.get(work.digest, (0.0,))[0]
        return bool(at) and self._clock() - at < SUCCESS_KEPT_SECONDS

    def add(self, work: Work) -> None:
        """The work has succeeded now."""
        self._at[work.digest] = (self._clock(), work)
        if len(self._at) > _MOST_SUCCESSES:
            self._at.popitem(last=False)

    def since(self, seconds: float, *, most: int) -> list[Work]:
        """Those of the last so many seconds, the latest first."""
        after = self._clock() - seconds
        found: list[Work] = []
        for at, work in reversed(list(self._at.values())):
            if at < after or len(found) >= most:
                break
            found.append(work)
        return found
