"""The outlet of a channel: a bounded queue and a daemon thread, so that nobody waits for the channel.

The thread touches no store: what became of a delivery is read by the main loop. A channel that hangs keeps
its thread and what is in its queue, whose claims run out, and gets nothing more; a process that ends does
not wait for it. The thread begins with the first notice, so a child of a fork that never uses the outlet
has none.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Full, Queue
from threading import Thread

from django.db import connections

from .channel import Channel, reason_of
from .notice import Notice
from .rules import ChannelRule

__all__ = ["Job", "Outlet", "Settled"]

MOST_WAITING = 10
_STALE_SECONDS = 30.0
"""Half of a claim: what has waited for longer is left to another, and who sends for longer gets no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A claimed delivery."""

    number: int
    condition: str
    notice: Notice


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of it. `error` is "" where the channel took it."""

    job: Job
    channel: str
    error: str = ""


class Outlet:
    """For the main loop, which calls put, room and settled."""

    def __init__(
        self, rule: ChannelRule, channel: Channel, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rule = rule
        self._channel = channel
        self._instant = bool(getattr(channel, "instant", False))
        self._clock = clock
        self._queue: Queue[tuple[float, Job] | None] = Queue(MOST_WAITING)
        self._done: deque[Settled] = deque()
        self._thread: Thread | None = None
        self._since: float | None = None

    def room(self) -> int:
        """How many notices it takes now."""
        since = self._since
        if since is not None and self._clock() - since > _STALE_SECONDS:
            return 0
        return MOST_WAITING - self._queue.unfinished_tasks

    @property
    def busy(self) -> bool:
        """Whether something is under way."""
        return self._queue.unfinished_tasks > 0

    def put(self, job: Job) -> None:
        """Have it delivered. Beyond the room it is left alone, and its claim runs out."""
        if self._instant:
            self._done.append(self._sent(job))
            return
        if self._thread is None:
            self._thread = Thread(target=self._run, name=f"alerts-{self.rule.name}", daemon=True)
            self._thread.start()
        with suppress(Full):
            self._queue.put_nowait((self._clock(), job))

    def settled(self) -> list[Settled]:
        """What has become of deliveries since the last call."""
        return [self._done.popleft() for _ in range(len(self._done))]

    def close(self) -> None:
        """End the thread behind what it does now; waits for nothing."""
        with suppress(Full):
            self._queue.put_nowait(None)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            put_at, job = item
            self._since = self._clock()
            if self._since - put_at <= _STALE_SECONDS:
                self._done.append(self._sent(job))
            self._since = None
            self._queue.task_done()

    def _sent(self, job: Job) -> Settled:
        error = ""
        try:
            self._channel.send(job.notice)
        # A channel may be anyone's: whatever it raises, the notice is not delivered.
        except Exception as exc:
            error = reason_of(exc, self.rule)
        finally:
            if not self._instant:
                connections.close_all()  # Those of this thread: a mail backend may keep its mails in one.
        return Settled(job=job, channel=self.rule.name, error=error)
