"""The drain of one worker: what is done from the signal until Celery's own shutdown, in turns of its loop.

Celery stops its consumer first and then waits for the pool; the messages go back when all have ended. Here
the loop goes on until nothing runs: acknowledgements, heartbeats and leases go on as ever, and only then
Celery is told to stop. Each turn does a little and never waits.

    1  no more messages are asked for; what is on its way is refused
    2  what has not begun goes back
    3  what runs may finish, until the grace period is over
    4  what runs then is ended, and goes back when it has ended
    5  Celery stops

SIGKILL before 1 or between any two lines: what is not acknowledged is the broker's to give to others, at
once over RabbitMQ, after the lease over Redis. A message goes back in one step of the broker's, so it is
either still this worker's or in its queue, never both and never neither. In 2 a message goes back only
after its request was claimed (see `request`): it cannot begin here any more. In 4 it goes back only after
its child or greenlet was seen to be gone; where SIGKILL comes between those two, the broker gives it to
others just the same. What ends before it is cut is acknowledged as ever. No attempt is counted anywhere:
the message that goes back is the one that came.

Lost connection: the broker has given to others what this worker held, or keeps it for the lease. Celery's
own shutdown begins at once then; the grace period still ends it (see `watchdog`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from celery.exceptions import WorkerShutdown
from celery.worker import state

from hardening.poison.returned import note_returned

from .messages import gave_back, stop_fetching
from .pools import Hands

__all__ = ["SOURCES", "Drain", "current_drain", "drain_with"]

logger = logging.getLogger("hardening")

SLICE_SECONDS = 0.4
"""How long one turn gives back messages: the loop has more to do."""

STUCK_AFTER_SECONDS = 3.0
"""So long after it was cut, a task that still runs is left behind."""

QUIET_TURNS = 2
"""Turns without anything to do before Celery stops."""

SETTLED_WITHIN_SECONDS = 2.0
"""How long Celery then waits for what has ended to be acknowledged, by its thread or in the loop's next turn.
What never is, because its letter is held, goes back when the channel closes."""

SOURCES: list[Callable[[], Iterable[Any]]] = []
"""Whoever keeps messages that have not begun, and are no requests of Celery's. Each call hands over what it
has: objects with `id` and `message`. It may not start them any more."""


@dataclass(slots=True)
class _Stray:
    """A message that never became a request."""

    message: Any
    id: str
    arrived: float = float("inf")
    was_cut: bool = False
    acknowledged: bool = False


@dataclass(slots=True)
class _Told:
    """Ids for the log, until they are told."""

    unstarted: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


class Drain:
    """The drain of one worker. `ask` and `overdue` are called by signal handlers, turns by its loop."""

    def __init__(self, worker: Any, hands: Hands, clock: Callable[[], float] = time.monotonic) -> None:
        self.worker = worker
        self.hands = hands
        self.consumer: Any = None
        """The consumer that is connected, if any."""
        self.asked = False
        self.finished = False
        self.overdue = False
        self.exitcode = 0
        self.deadline: float | None = None
        self.last_turn = 0.0
        self._clock = clock
        self._fetching = True
        self._going_back: list[Any] = []
        self._noted: set[int] = set()
        self._told = _Told()
        self._cut_since: float | None = None
        self._quiet = 0
        self._quiet_since: float | None = None
        self._begun: dict[int, Any] = {}
        self._turn = Lock()

    def ask(self, *, exitcode: int, grace: float | None) -> bool:
        """Begin, or hurry up. Whether the drain will end the worker; else Celery has to stop at once.

        Nothing but assignments: this is called between any two steps of the main thread.
        """
        deadline = None if grace is None else self._clock() + grace
        if not self.asked:
            self.exitcode, self.deadline, self.last_turn = exitcode, deadline, self._clock()
            self.asked = True
        elif deadline is not None and (self.deadline is None or deadline < self.deadline):
            self.exitcode, self.deadline = exitcode, deadline
        return self.consumer is not None and not self.finished

    def refuses(self, request: Any) -> bool:
        """Whether a request may not begin any more; then it goes back."""
        if not self.asked or request.has_begun:
            return False
        if request.claim_for_return():
            self._going_back.append(request)
        return True

    def refuse(self, message: Any) -> None:
        """Take a message that came although no more was asked for."""
        self._going_back.append(_Stray(message, str((message.headers or {}).get("id", "?"))))

    def cut_short(self, request: Any) -> None:
        """A task that was cut has ended: its message can go back now."""
        if request.acknowledged:
            self._told.lost.append(request.id)  # Early: by its project's choice.
        else:
            self._going_back.append(request)

    def connected(self, consumer: Any) -> None:
        """The consumer has a connection."""
        self.consumer = consumer
        self._fetching = True

    def disconnected(self) -> None:
        """It has none any more, or Celery stops."""
        self.consumer = None
        if self.asked and not self.finished:
            _stop_celery(self.exitcode)

    def turn(self) -> None:
        """Do what can be done now. From the loop's timer, or a greenlet."""
        if not self.asked or self.finished or not self._turn.acquire(blocking=False):
            return
        try:
            self.last_turn = self._clock()
            self._do_turn()
        finally:
            self._turn.release()

    def _do_turn(self) -> None:
        if self.consumer is not None and self._fetching:
            stop_fetching(self.consumer, self.refuse)
            self._fetching = False
        running = self._sort()
        self._note_returned()
        self._give_back_some()
        if running and self.deadline is not None and self._clock() >= self.deadline:
            running = self._cut(running)
        if running or self._going_back:
            self._quiet, self._quiet_since = 0, None
            return
        self._quiet += 1
        if self._quiet_since is None:
            self._quiet_since = self._clock()
        late = self._clock() - self._quiet_since >= SETTLED_WITHIN_SECONDS
        if self._quiet >= QUIET_TURNS and (late or not self._unsettled()):
            self._finish()

    def _unsettled(self) -> bool:
        """Whether the broker has not been told of something that has ended."""
        for key, request in list(self._begun.items()):
            if request.message.acknowledged:
                del self._begun[key]
        return bool(self._begun)

    def _sort(self) -> list[Any]:
        """Take what has not begun; return what runs."""
        from .request import OPEN  # It asks us, too.

        running = []
        for request in list(OPEN):
            if request.is_given_back or request.is_abandoned:
                continue
            if request.has_begun and not request.message.acknowledged:
                self._begun[id(request)] = request  # Celery forgets it before its acknowledgement is sent.
            if self._runs(request):
                running.append(request)
            elif not request.has_begun and not request.acknowledged and request.claim_for_return():
                self._going_back.append(request)
        for source in SOURCES:
            self._going_back += [_Stray(kept.message, kept.id) for kept in source()]
        return running

    def _runs(self, request: Any) -> bool:
        if request in state.active_requests:
            return True
        # Given to the pool: on prefork a child is about to begin.
        given = request.has_begun or (self.hands.starts_for_sure and request._apply_result is not None)
        return given and request in state.reserved_requests

    def _note_returned(self) -> None:
        """On RabbitMQ: before others can have them, that these go back, and why."""
        fresh = [one for one in self._going_back if id(one) not in self._noted]
        for judged in (True, False):
            some = [one.message for one in fresh if isinstance(one, _Stray) is not judged]
            if some and self.worker is not None:
                note_returned(self.worker.app, some, judged=judged)
        self._noted = {id(one) for one in self._going_back}

    def _give_back_some(self) -> None:
        # The last that came first: each goes to the head of its queue.
        self._going_back.sort(key=lambda one: one.arrived)
        until = self._clock() + SLICE_SECONDS
        while self._going_back and self._clock() < until:
            one = self._going_back.pop()
            if not isinstance(one, _Stray):
                one.let_go()
                state.task_ready(one)
            one.acknowledged = True  # Whatever its task still does here, it does not acknowledge.
            told = self._told
            untouched = not (one.was_cut or getattr(one, "has_begun", False))
            if self.consumer is None or not gave_back(one.message, untouched=untouched):
                told.kept.append(one.id)
            else:
                (told.cut if one.was_cut else told.unstarted).append(one.id)
        if not self._going_back:
            self._tell()

    def _cut(self, running: list[Any]) -> list[Any]:
        """End what runs. Returns what has to be waited for."""
        now = self._clock()
        if self._cut_since is None:
            self._cut_since = now
        elif not self.hands.cuts or now - self._cut_since >= STUCK_AFTER_SECONDS:
            self._abandon(running)
            return []
        for request in running:
            self.hands.cut(request)
            request.was_cut = True
        return running

    def _abandon(self, running: list[Any]) -> None:
        for request in running:
            request.was_cut = request.is_abandoned = True
            self.cut_short(request)
        self.hands.abandon(self.worker)

    def wake(self) -> None:
        """The grace period is over and the loop makes no turns: end what runs, from a signal handler.

        Raises WorkerShutdown on solo, where that is in the task itself: it comes to its `finally`, and its
        message goes back when Celery closes the channel. Celery's own last SIGINT does the same.
        """
        from .request import OPEN

        _stop_celery(self.exitcode)
        running = [request for request in list(OPEN) if request in state.active_requests]
        for request in running:
            self.hands.cut(request)
            request.was_cut = True
        if running and not self.hands.cuts and self.hands.starts_for_sure:
            self._told.cut += [request.id for request in running if not request.acknowledged]
            self._tell()
            raise WorkerShutdown(self.exitcode)

    def _finish(self) -> None:
        self._tell()
        self.finished = True
        hub = getattr(self.consumer, "hub", None)
        if hub is None:
            _stop_celery(self.exitcode)
        else:  # Among the acknowledgements that wait in the loop: it runs all of them before it looks.
            hub.call_soon(_stop_celery, self.exitcode)

    def _tell(self) -> None:
        told, self._told = self._told, _Told()
        for level, ids, text in (
            (logging.INFO, told.unstarted, "not begun, given back to the broker"),
            (logging.WARNING, told.cut, "running at the end of the grace period, cut and given back"),
            (logging.WARNING, told.kept, "not given back now; the broker does it when this worker is gone"),
            (logging.ERROR, told.lost, "cut, and lost: acknowledged before they ran"),
        ):
            if ids:
                logger.log(
                    level,
                    "shutdown: %d task(s) %s: %s",
                    len(ids),
                    text,
                    ", ".join(ids),
                    extra={"task_ids": list(ids)},
                )


def _stop_celery(exitcode: int) -> None:
    flags: Any = state
    flags.should_stop = exitcode


_current: Drain | None = None


def current_drain() -> Drain | None:
    """The drain of this process's worker."""
    return _current


def drain_with(drain: Drain) -> None:
    """From now on the requests of this process ask this drain."""
    global _current
    _current = drain
