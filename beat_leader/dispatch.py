"""Sends what was decided, and says so in the store: each due time once, as long as the term is trusted.

The argument. A job is in the queue only if its row is DUE in the store, written by this term or left by an
earlier one. The row is marked after the broker has the message. What was sent and could not be marked yet is
remembered beyond the term, so that this process does not take it for unsent; only if it dies between the two
is a message sent again, by the next leader, under the same id.

A publish that fails leaves its row DUE, and is tried again until the job's time is over. Where the broker
itself seems to be away, all of them wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from hardening.core.redaction import project_redactor

from .clock import steady
from .entry import Entry
from .ticks import TickStore

__all__ = ["BrokerAway", "Dispatch", "Job", "Key", "OwnFault"]

logger = logging.getLogger("beat_leader")

Key = tuple[str, int]
"""Schedule and due time."""

_MANY = 5
_MARK_EACH = 20
_MARK_WITHIN_SECONDS = 0.05
_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 5.0
_SLOW_SECONDS = 0.5
_MOST_FAILURES_IN_A_ROW = 3
_MOST_TRIES_IN_FRONT = 6
"""A message at which a broker hangs up each time does not hold up the others for ever."""

_LONGEST_PROBLEM = 500


class BrokerAway(Exception):
    """It is not this message's fault: the broker does not take any."""


class OwnFault(Exception):
    """The broker was not even asked: nobody can write or make its arguments. It holds up no other message."""


@dataclass(slots=True, kw_only=True)
class Job:
    """A due time that is to be sent."""

    entry: Entry
    due_ms: int
    next_ms: int | None
    """The due time after it."""

    until_ms: int
    """If it could not be sent by then it is missed. By the store's time."""

    tries: int = 0
    problem: str = ""

    @property
    def key(self) -> Key:
        """What its row is known by."""
        return (self.entry.name, self.due_ms)


class Dispatch:
    """The queue of one Beat. Used by the thread that ticks only."""

    def __init__(
        self,
        ticks: TickStore,
        publish: Callable[[Job], None],
        *,
        now_ms: Callable[[], int],
        clock: Callable[[], float] = steady,
    ) -> None:
        """`publish` returns when the broker has the message, and raises otherwise. `now_ms`: the store's."""
        self._ticks = ticks
        self._publish = publish
        self._now_ms = now_ms
        self._clock = clock
        self._heap: list[tuple[float, int, int, Job]] = []
        self._order = count()
        self._queued: set[Key] = set()
        self._unmarked: dict[Key, int] = {}
        self._unmarked_since = 0.0
        self._failures = 0
        self._resumes_at = 0.0
        self.sent: dict[str, tuple[int, int]] = {}
        """By schedule: when it was last sent, and how often, since somebody took it."""

        self.problem = ""
        """Of the latest publish; empty: it went well."""

    def add(self, job: Job) -> None:
        """Its row is DUE. What is in hand already is not taken again."""
        if job.key not in self._queued and job.key not in self._unmarked:
            self._queued.add(job.key)
            self._put(job, self._clock())

    def begin(self) -> None:
        """Another term: the store says what is to be sent. What was sent and is not marked is kept."""
        self._heap.clear()
        self._queued.clear()
        self._resumes_at, self._failures = 0.0, 0

    def run(self, epoch: int, trusted: Callable[[], bool], *, seconds: float) -> int:
        """Send what can be sent now, in the order of due times, for about so long; returns how many.

        Raises what the store raises. Nothing is sent once `trusted` says no.
        """
        began = self._clock()
        done = 0
        while (job := self._next()) is not None:
            if not trusted():
                break
            if self._now_ms() > job.until_ms:
                self._give_up(epoch, job)
            else:
                done += self._send(epoch, job)
            if self._clock() - began > seconds:
                break
        self.mark(epoch)
        return done

    def mark(self, epoch: int) -> None:
        """Tell the store what was sent."""
        if not self._unmarked:
            return
        self._ticks.sent(epoch, list(self._unmarked), max(self._unmarked.values()))
        self._unmarked.clear()

    def drop(self, epoch: int, schedules: Iterable[str], why: str) -> None:
        """Schedules that are gone or disabled: what was to be sent of them is not."""
        gone = set(schedules)
        kept: list[tuple[float, int, int, Job]] = []
        for item in self._heap:
            job = item[3]
            if job.entry.name in gone:
                self._ticks.missed(epoch, *job.key, why)
                self._queued.discard(job.key)
            else:
                kept.append(item)
        if len(kept) != len(self._heap):
            kept.sort()
            self._heap = kept

    def lag_ms(self) -> int:
        """By how much the most overdue of the queue is late."""
        oldest = min((item[1] for item in self._heap), default=None)
        return 0 if oldest is None else max(0, self._now_ms() - oldest)

    def wait_seconds(self) -> float | None:
        """Until the next one can be tried; None: the queue is empty."""
        if not self._heap:
            return None
        return max(0.0, max(self._heap[0][0], self._resumes_at) - self._clock())

    def take_sent(self) -> dict[str, tuple[int, int]]:
        """What `sent` has, which is empty then."""
        taken, self.sent = self.sent, {}
        return taken

    def _next(self) -> Job | None:
        now = self._clock()
        if not self._heap or now < self._resumes_at or now < self._heap[0][0]:
            return None
        return self._heap[0][3]

    def _put(self, job: Job, not_before: float) -> None:
        # In the order in which they can be tried, so that none waits for those that come after it for ever.
        heappush(self._heap, (not_before, job.due_ms, next(self._order), job))

    def _take_out(self, job: Job) -> None:
        heappop(self._heap)
        self._queued.discard(job.key)

    def _send(self, epoch: int, job: Job) -> bool:
        began = self._clock()
        try:
            self._publish(job)
        # Whatever a broker, a task's own apply_async or a lazy argument raises.
        except Exception as exc:
            self._failed(job, exc, self._clock() - began)
            return False
        now_ms = self._now_ms()
        self._take_out(job)
        self._failures = 0
        self.problem = ""
        if not self._unmarked:
            self._unmarked_since = self._clock()
        self._unmarked[job.key] = now_ms
        self.sent[job.entry.name] = (now_ms, self.sent.get(job.entry.name, (0, 0))[1] + 1)
        if self._is_time_to_mark():
            self.mark(epoch)
        return True

    def _is_time_to_mark(self) -> bool:
        """At once, unless many wait: what is sent and not marked is sent again if this process dies."""
        return (
            len(self._heap) < _MANY
            or len(self._unmarked) >= _MARK_EACH
            or self._clock() - self._unmarked_since > _MARK_WITHIN_SECONDS
        )

    def _failed(self, job: Job, exc: Exception, took: float) -> None:
        own, said = isinstance(exc, OwnFault), project_redactor().text(str(exc))
        if not job.tries and (own or not self._failures):
            logger.warning("schedule %s was not sent, and is tried again: %s", job.entry.name, said)
        job.tries += 1
        job.problem = (said if own else f"{type(exc).__name__}: {said}")[:_LONGEST_PROBLEM]
        self.problem = f"{job.entry.name} was not sent: {job.problem}"
        self._failures += not own
        now = self._clock()
        away = isinstance(exc, BrokerAway)
        if not own and (away or took > _SLOW_SECONDS or self._failures >= _MOST_FAILURES_IN_A_ROW):
            self._resumes_at = now + _wait(self._failures)
        if not away or job.tries >= _MOST_TRIES_IN_FRONT:
            # Else it keeps its place: due times are sent in their order when the broker is back.
            heappop(self._heap)
            self._put(job, now + _wait(job.tries))

    def _give_up(self, epoch: int, job: Job) -> None:
        why = job.problem or "its time was over before it could be sent"
        self._ticks.missed(epoch, *job.key, why)
        self._take_out(job)
        logger.error("schedule %s: the due time %s was missed: %s", job.entry.name, job.due_ms, why)


def _wait(tries: int) -> float:
    return float(min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2 ** min(tries - 1, 10)))
