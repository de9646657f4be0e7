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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from os import getpid
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

from celery import Celery

from hardening.conf import load_settings
from hardening.core.identity import TWIN_HEADER
from hardening.core.loading import BackendError
from hardening.leases.terms import Lease

from . import here
from .adoption import adopt, can_adopt
from .figure import Tally
from .held import HeldBack
from .records import Records
from .work import Work

__all__ = ["Twins", "Verdict", "Watched", "twins_for"]

logger = logging.getLogger("hardening")

GRACE_SECONDS = 0.5
"""How long RabbitMQ's redeliveries wait for the word of the worker that had them: it learns a moment later
than the broker that its connection is lost."""

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
    unsure: bool = False
    """Whether it may be marked all the same: the store was asked and did not answer."""

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
        lease: Lease | None = None,
        records: Records | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        lease = lease or load_settings()[0].lease_terms
        self.renew_every = lease.renew_every
        self._records = records or Records(app, lease_seconds=lease.seconds)
        self._records.worker = f"{socket.gethostname()}, process {getpid()}"
        self._clock = clock
        self._tally = Tally()
        self._renewed_at = 0.0
        self._watched: dict[str, Watched] = {}
        self._owed: dict[str, Work] = {}
        self._at_marks: dict[str, object] = {}
        self.held = HeldBack()
        self.successes = here.Successes()
        self.lives_for_others: Callable[[], bool] = lambda: False
        """Whether somebody else's records count as long as this worker lives."""

    @property
    def holder(self) -> str:
        """This worker in the store: a new one with each start."""
        return self._records.holder

    def is_alive(self, holder: str) -> bool | None:
        """Whether another worker lives that has records of its starts. None: nobody knows."""
        return self._records.is_alive(holder)

    def be_alive(self) -> None:
        """Say that this worker lives, before something is written that counts as long as it does."""
        self._records.be_alive()

    def life_key(self, global_prefix: str) -> str | None:
        """The key that says that this worker lives, for who can renew it while the main loop is blocked."""
        try:
            return self._records.life_key(global_prefix)
        except BackendError:  # A finding of its own; marks are renewed from the main loop then.
            return None

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
            if self.held.hold(arrival, seconds=None if who else GRACE_SECONDS) and who:
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
        copy = here.copy_of(work, message, consumer)
        if copy is not None:
            adopted = can_adopt(copy, work, message)
            if adopted:  # Before anything is asked: on gevent the copy may end meanwhile.
                adopt(copy, message, consumer)
            self.watch(copy)  # Whichever ends first, its success must be known.
            return Verdict.ADOPTED if adopted else Verdict.HOLD, this
        came_back = here.dies_with_channel(message) and message.delivery_info.get("redelivered")
        if came_back and not self.held.has(message):
            return Verdict.HOLD, ""
        with self._alone_with(work) as alone:
            if not alone or self._is_admitted(work, message, consumer):
                return Verdict.HOLD, this
            verdict, who = self._ask(work, message)
        if verdict is Verdict.DONE:
            self._give_up(work)
        return verdict, who

    @contextmanager
    def _alone_with(self, work: Work) -> Iterator[bool]:
        """Whether nobody else in this worker is at its mark; nobody comes to it meanwhile.

        While the store is asked about one copy, another greenlet may ask about the next. All find the mark
        to be this worker's, and one that gives it up would take it from one that starts.
        """
        mine = object()
        alone = self._at_marks.setdefault(work.digest, mine) is mine
        try:
            yield alone
        finally:
            if alone:
                del self._at_marks[work.digest]

    def _is_admitted(self, work: Work, message: Any, consumer: Any) -> bool:
        """Whether another message of the work is about to start here, and Celery did not list its request.

        It makes one in a moment, or the request waits for its time or its rate.
        """
        watched = self._watched.get(work.digest)
        if watched is None or watched.message is message or watched.is_over(self._clock()):
            return False
        request = watched.request() if watched.request is not None else None
        if request is not None and request.time_start:  # In a thread meanwhile; or it has ended.
            return any(each is request for each in here.unfinished())
        return here.is_ours(watched.message, consumer)

    def _ask(self, work: Work, message: Any) -> tuple[Verdict, str]:
        """What the others know of it."""
        marked, other = self._records.take_mark(work)
        if other is not None:
            return Verdict.HOLD, other
        if not marked and here.is_leased(message) and self._records.unreachable_with_broker:
            # Its lease needs the same Redis: neither it nor its acknowledgement would come to anything now.
            return Verdict.HOLD, ""
        # Only now: a copy writes its success before it gives up its mark.
        success = self._records.success_of(work)
        if success is not None:
            self.successes.add(work)
            return Verdict.DONE, str(success.get("worker"))
        self._owed.pop(work.digest, None)
        self._enter(Watched(work, message, self._clock(), marked=marked, unsure=not marked))
        return Verdict.START, "this worker"

    def standing(self, message: Any, consumer: Any) -> Verdict:
        """What is known of the work of a message that shall not run: DONE, HOLD while it runs, else START."""
        work = Work.of(message)
        if work in self.successes:
            return Verdict.DONE
        if here.copy_of(work, message, consumer) is not None or self._records.runner_of(work):
            return Verdict.HOLD
        # Only now, as in `_judge`.
        return Verdict.START if self._records.success_of(work) is None else Verdict.DONE

    def leave(self, message: Any) -> None:
        """A message that was let pass is not run here after all: others may have it at once."""
        watched = self._watched.get(Work.of(message).digest)
        if watched is not None and watched.request is None:
            self._drop(watched)

    # Requests

    def begin(self, request: Any) -> Watched:
        """A request was made of a message that may have a twin. Its retries may meet it."""
        work = Work.of(request.message)
        watched = self._watched.get(work.digest)
        if watched is None or watched.message is not request.message:
            watched = Watched(work, request.message, self._clock())
            self._enter(watched)
        watched.request = ref(request)
        request.request_dict[TWIN_HEADER] = work.publish or True
        return watched

    def _enter(self, watched: Watched) -> None:
        before = self._watched.get(watched.work.digest)
        if before is not None:  # One mark for a work: it goes over.
            watched.marked, watched.unsure = watched.marked or before.marked, watched.unsure or before.unsure
            before.marked = before.unsure = False
        self._watched[watched.work.digest] = watched

    def watch(self, request: Any) -> None:
        """A running request may have a twin from now on."""
        watched = request.twin
        if watched is None:
            watched = request.twin = self.begin(request)
        watched.message = request.message
        self._mark(watched)

    def end(self, request: Any) -> None:
        """The request is about to be acknowledged or rejected: its success is recorded before."""
        watched: Watched | None = request.twin
        success = here.succeeded(request)
        if watched is None:
            # Where tags die with their channel, the acknowledgement may be lost on its way.
            if success and here.dies_with_channel(request.message):
                self.successes.add(Work.of(request.message))
            return
        request.twin = None
        if success:
            self._succeed(watched.work, request.name)
        self._drop(watched)

    def forget_dropped(self, begins_later: Callable[[Any], bool]) -> None:
        """The channel is lost, and Celery drops what has not begun: it is this worker's no longer.

        Not left to the request's end in memory: it has none as long as anything still refers to it.
        """
        for watched in list(self._watched.values()):
            request = watched.request() if watched.request is not None else None
            if request is not None and not request.time_start and not begins_later(request):
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
        self._owed.pop(watched.work.digest, None)
        watched.marked, other = self._records.take_mark(watched.work)
        watched.unsure = watched.unsure or (not watched.marked and other is None)
        if watched.marked and watched.is_over(self._clock()):  # On gevent meanwhile.
            self._drop(watched)

    def _drop(self, watched: Watched) -> None:
        watched.ended = True
        if self._watched.get(watched.work.digest) is watched:
            del self._watched[watched.work.digest]
        if watched.marked or watched.unsure:
            watched.marked = watched.unsure = False
            self._give_up(watched.work)

    def _give_up(self, work: Work) -> None:
        """A mark that is left behind would hold copies back as long as this worker lives."""
        with self._alone_with(work) as alone:
            if not alone or not self._records.give_up_mark(work):
                self._owed[work.digest] = work

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
        work = Work.of(message)
        if here.has_succeeded_lately(work.task_id) and work not in self.successes:
            self._succeed(work, str(message.headers.get("task")))

    def renew(self) -> None:
        """Keep the marks of what runs, give up those of what does not, try again what could not be had."""
        now = self._renewed_at = self._clock()
        for watched in list(self._watched.values()):
            if watched.is_over(now):
                self._drop(watched)
            else:
                self._mark(watched)
        for digest in list(self._owed):
            if owed := self._owed.pop(digest, None):
                self._give_up(owed)
        if self.lives_for_others() or any(watched.marked for watched in self._watched.values()):
            self._records.stay_alive()
        self._write_figure()

    def renew_when_due(self) -> None:
        """For one who has the main loop, and asks often."""
        if (
            self._watched or self.lives_for_others()
        ) and self._clock() - self._renewed_at >= self.renew_every:
            self.renew()

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
