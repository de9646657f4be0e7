"""Twins: which messages of this worker may have one, who may start, and what a success means then.

Who holds what. The message is with the broker until it is acknowledged, whatever is decided here. A mark in
the store says that its work runs; it is this worker's as long as the request is unfinished. A success is
recorded before its message is acknowledged.

- The worker dies: its marks count no longer after the lease, and the message is run by another.
- It dies between the record of a success and the acknowledgement: the message comes back and is acknowledged.
- It dies between the end of the body and the record: the work runs again. This window stays.

A failure or a retry is no success: it refuses no copy. A retry is a message of its own with the next attempt,
which a copy of the former attempt does not know of; the copy runs, and may be tried again itself. Retries of
a message that may have a twin say so in a header and are treated alike, so that the first success at
whatever attempt refuses all that start later, and is the one that any other success is a duplicate of.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from os import getpid
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

from celery import Celery

from . import here
from .adoption import adopt, can_adopt
from .figure import Tally
from .held import HeldBack
from .records import Records
from .work import TWIN_HEADER, Work

__all__ = ["LEASE_SECONDS", "RENEWED_EVERY_SECONDS", "Twins", "Watched", "twins_for"]

logger = logging.getLogger("hardening")

LEASE_SECONDS = 12.0
RENEWED_EVERY_SECONDS = 4.0
_UNCLAIMED_SECONDS = 5.0


class Verdict(Enum):
    """What becomes of a message that may have a twin."""

    START = "start"
    HOLD = "hold"
    ADOPTED = "adopted"
    DONE = "done"


@dataclass(slots=True)
class Watched:
    """A message of this worker that may have a twin, from its admission to its end."""

    work: Work
    message: Any
    since: float
    request: ReferenceType[Any] | None = None
    marked: bool = False
    ended: bool = False

    def is_over(self, now: float) -> bool:
        """Whether nothing of it is left here: ended, or dropped by the pool or by Celery."""
        if self.request is None:  # Celery made no request of it.
            return self.ended or now - self.since > _UNCLAIMED_SECONDS
        request = self.request()
        return self.ended or request is None or bool(request.acknowledged)


class Twins:
    """The twins that one worker knows of. Used from its main loop, or from its greenlets."""

    def __init__(
        self,
        app: Celery,
        *,
        lease_seconds: float = LEASE_SECONDS,
        records: Records | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records = records or Records(app, lease_seconds=lease_seconds)
        self._records.worker = f"{socket.gethostname()}, process {getpid()}"
        self._clock = clock
        self._tally = Tally()
        self._watched: dict[str, Watched] = {}
        self.held = HeldBack()
        self.successes = here.Successes()

    # Reception

    def is_named(self, hostname: str) -> None:
        """What this worker is called, for people."""
        self._records.worker = f"{hostname}, process {getpid()}"

    def receive(self, arrival: Any) -> bool:
        """Decide about a message that may have a twin. False: Celery may make a request of it."""
        message = arrival.message
        work = Work.of(message)
        verdict, who = self._judge(work, message, arrival.consumer)
        if verdict is Verdict.HOLD:
            if self.held.hold(arrival):
                _say(logging.INFO, work, arrival.task.name, "is held back, for it is run by", who)
            return True
        self.held.let_go(message)
        if verdict is Verdict.START:
            return False
        if verdict is Verdict.DONE:
            _say(logging.WARNING, work, arrival.task.name, "is not run again, it succeeded in", who)
            self._tally.not_run(arrival.task.name)
            arrival.acknowledge()
        else:
            _say(logging.INFO, work, arrival.task.name, "came back and is still run by", who)
        return True

    def _judge(self, work: Work, message: Any, consumer: Any) -> tuple[Verdict, str]:
        this = "this worker"
        if work in self.successes:
            return Verdict.DONE, this
        copy = here.copy_of(work, message)
        if copy is not None:
            self.watch(copy)  # Whichever ends first, its success must be known.
            if can_adopt(copy, work, message):
                adopt(copy, message, consumer)
                copy.twin.message = message
                return Verdict.ADOPTED, this
            return Verdict.HOLD, this
        marked, other = self._records.take_mark(work)
        if other is not None:
            return Verdict.HOLD, other
        # Only now: a copy writes its success before it gives up its mark.
        success = self._records.success_of(work)
        if success is not None:
            if marked:
                self._records.give_up_mark(work)
            self.successes.add(work)
            return Verdict.DONE, str(success.get("worker"))
        self._watched[work.digest] = Watched(work, message, self._clock(), marked=marked)
        return Verdict.START, this

    # Requests

    def begin(self, request: Any) -> Watched:
        """A request was made of a message that may have a twin. Its retries may meet it."""
        work = Work.of(request.message)
        watched = self._watched.get(work.digest)
        if watched is None or watched.message is not request.message:
            watched = Watched(work, request.message, self._clock())
            self._watched.setdefault(work.digest, watched)
        watched.request = ref(request)
        request.request_dict[TWIN_HEADER] = True
        return watched

    def watch(self, request: Any) -> None:
        """A running request may have a twin from now on."""
        if request.twin is None:
            request.twin = self.begin(request)
        self._mark(request.twin)

    def end(self, request: Any) -> None:
        """The request is about to be acknowledged or rejected: its success is recorded before."""
        watched: Watched | None = request.twin
        success = here.succeeded(request)
        if watched is None:
            # Where tags die with their channel, the acknowledgement may be lost on its way.
            if success and hasattr(request.message.channel, "is_open"):
                self.successes.add(Work.of(request.message))
            return
        request.twin = None
        if success:
            self._succeed(watched.work, request.name)
        self._drop(watched)

    def _succeed(self, work: Work, task_name: str) -> None:
        again = work in self.successes
        self.successes.add(work)
        first = self._records.record_success(work)
        if first is None and not again:
            return
        worker = str((first or {}).get("worker") or self._records.worker)
        _say(
            logging.WARNING,
            work,
            task_name,
            "is a duplicate: it succeeded here, and before in",
            worker,
            here=self._records.worker,
        )
        self._tally.ran_again(task_name)
        self._write_figure()

    def _mark(self, watched: Watched) -> None:
        if watched.marked or watched.ended:
            return
        watched.marked, _ = self._records.take_mark(watched.work)
        if watched.marked and watched.is_over(self._clock()):  # On gevent meanwhile.
            self._drop(watched)

    def _drop(self, watched: Watched) -> None:
        watched.ended = True
        if self._watched.get(watched.work.digest) is watched:
            del self._watched[watched.work.digest]
        if watched.marked:
            watched.marked = False
            self._records.give_up_mark(watched.work)

    # Leases

    def on_lost(self, message: Any) -> None:
        """The lease of a message was lost and others have it: its request, if one runs, is marked."""
        self.held.let_go(message)
        request = here.request_of(message)
        if request is None:
            return
        logger.warning(
            "task %s[%s] lost the lease of its message; if another worker starts it, the second success is "
            "counted as a duplicate",
            request.name,
            request.id,
            extra={"task_id": request.id, "task_name": request.name},
        )
        self.watch(request)

    def on_late_ack(self, message: Any) -> None:
        """The acknowledgement of a message came after others had been given it."""
        task_id = message.headers.get("id")
        work = Work.of(message)
        if here.has_succeeded_lately(task_id) and work not in self.successes:
            self._succeed(work, str(message.headers.get("task")))

    def renew(self) -> None:
        """Keep the marks of what runs, give up those of what does not, try again what could not be had."""
        now = self._clock()
        for watched in list(self._watched.values()):
            if watched.is_over(now):
                self._drop(watched)
            else:
                self._mark(watched)
        if any(watched.marked for watched in self._watched.values()):
            self._records.stay_alive()
        self._write_figure()

    def remember(self, works: list[Work]) -> None:
        """Tell the others of successes of this worker whose acknowledgements may be lost."""
        for work in works:
            if self._records.unreachable:
                return
            self._records.record_success(work)

    def _write_figure(self) -> None:
        if self._tally:
            self._records.ask(self._tally.write, None)


def _say(level: int, work: Work, task_name: str, what: str, who: str, **more: str) -> None:
    logger.log(
        level,
        "task %s[%s] %s %s%s",
        task_name,
        work.task_id,
        what,
        who,
        f" (here: {more['here']})" if more else "",
        extra={"task_id": work.task_id, "task_name": task_name, "other": who, **more},
    )


_all: WeakKeyDictionary[Celery, Twins] = WeakKeyDictionary()


def twins_for(app: Celery) -> Twins:
    """The twins of an app's worker in this process."""
    found = _all.get(app)
    if found is None:
        found = _all[app] = Twins(app)
    return found
