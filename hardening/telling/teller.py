"""The teller: the thread of a worker's parent that tells how messages ended, and what is owed meanwhile.

The main loop hands an outcome over and waits for GRACE_SECONDS at most. One that is not told by then is told
later, as the worker's timer has no part in it: the thread tries again by itself.

Fork. A prefork worker forks while this thread lives, and a lock that it held at that moment would stay locked
in the child for ever. So it works with the fork gate in its hand, which a fork waits for, but not longer than
FORK_SECONDS: after that time it waits for an answer, and who waits for an answer holds no lock of anybody
else's. A child has no teller, and tells by itself.

Not started, as outside of a worker, all is told at once by the caller.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from celery import Celery
from django.db import connections

from .backends import make_impatient
from .outcome import ChordNotYet, Outcome, is_passing
from .patience import Patience

__all__ = ["GRACE_SECONDS", "MOST_OWED", "NoAnswer", "Teller", "teller_for"]

logger = logging.getLogger("hardening")

T = TypeVar("T")

GRACE_SECONDS = 0.5
FORK_SECONDS = 0.2
MOST_OWED = 1000
_CHORD_AGAIN_SECONDS = 1.0
_SAID_EVERY_SECONDS = 60.0
_MOST_NAMED = 50


class NoAnswer(Exception):
    """The result backend did not answer in time, or is left alone now."""


class _Question:
    """Something to be asked, and its answer."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask = ask
        self.answer: Any = None
        self.error: Exception | None = None

    def run(self) -> Exception | None:
        try:
            self.answer = self._ask()
        # For who asked.
        except Exception as exc:
            self.error = exc
        return self.error


class _Work:
    def __init__(self, what: Outcome | _Question) -> None:
        self.what = what
        self.done = threading.Event()


class Teller:
    """That of an app's worker in this process. Its methods are for the main loop, and for greenlets."""

    def __init__(
        self,
        app: Celery,
        *,
        most: int = MOST_OWED,
        grace: float = GRACE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._most = most
        self._grace = grace
        self._clock = clock
        self._changed = threading.Condition()
        self._gate = threading.Lock()
        self._busy_since: float | None = None
        self._current: _Work | None = None
        self._new: deque[_Work] = deque()
        self._owed: deque[Outcome] = deque()
        self._soon: list[tuple[float, Outcome]] = []
        self._patience = Patience()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._silent_until = 0.0
        _tellers.add(self)

    def __len__(self) -> int:
        """How many outcomes are owed."""
        with self._changed:
            return len(self._left())

    def _left(self) -> list[Outcome]:
        """What is not told yet, the oldest first."""
        works = [*([self._current] if self._current else []), *self._new]
        new = [work.what for work in works if isinstance(work.what, Outcome)]
        return [*self._owed, *(outcome for _, outcome in self._soon), *new]

    def start(self) -> None:
        """From now on the thread tells. May be called again."""
        with self._changed:
            self._closing = False
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="hardening-teller", daemon=True)
                self._thread.start()

    def tell(self, outcome: Outcome) -> bool:
        """Whether it is told; else it is owed. Never raises."""
        if self._is_direct:
            error = outcome.tell()
            if error is not None:
                self._drop([outcome], f"{type(error).__name__}")
            return error is None
        if len(self._new) >= self._most:
            self._drop([outcome], f"more than {self._most} are owed")
            return False
        work = _Work(outcome)
        return self._hand_over(work, wait=self._patience.allows(self._clock())) and outcome.is_told

    def ask(self, question: Callable[[], T]) -> T:
        """The answer to a question. Raises what it raises, and NoAnswer where there is none in time."""
        if self._is_direct:
            return question()
        if not self._patience.allows(self._clock()):
            raise NoAnswer("the result backend is left alone")
        asked = _Question(question)
        if not self._hand_over(_Work(asked), wait=True):
            raise NoAnswer(f"the result backend did not answer in {self._grace:g} s")
        if asked.error is not None:
            raise asked.error
        return asked.answer  # type: ignore[no-any-return]

    def close(self, seconds: float = 2.0) -> None:
        """The worker ends: a last try for what is owed, unless the backend is silent. Says what is lost."""
        until = self._clock() + seconds
        with self._changed:
            thread, self._closing = self._thread, True
            self._changed.notify_all()
        if thread is not None:
            thread.join(max(0.0, until - self._clock()))
        with self._changed:
            left = self._left()
            self._owed.clear()
            self._soon.clear()
            self._new.clear()
            self._thread = None
        self._drop(left, "the worker ends")

    @property
    def _is_direct(self) -> bool:
        return self._thread is None or self._thread is threading.current_thread()

    def _hand_over(self, work: _Work, *, wait: bool) -> bool:
        with self._changed:
            self._new.append(work)
            self._changed.notify_all()
        if not wait:
            return False
        if work.done.wait(self._grace):
            return True
        with self._changed:
            if not work.done.is_set():
                self._patience.lost()
        self._say_silent()
        return work.done.is_set()

    def _run(self) -> None:
        self._app.set_current()
        with self._gated(None):  # It imports: in a child that is forked meanwhile a module would stay locked.
            make_impatient(self._app)
        while True:
            with self._changed:
                work = self._next()
                while work is None:
                    if self._closing and not self._new:
                        return
                    self._changed.wait(self._nap())
                    work = self._next()
            try:
                with self._gated(work):
                    self._do(work)
            # The thread must go on, whatever a backend did.
            except Exception as exc:
                logger.exception("the end of a message could not be told")
                self._end(work, exc)

    @contextmanager
    def _gated(self, work: _Work | None) -> Iterator[None]:
        with self._gate:
            self._current, self._busy_since = work, self._clock()
            try:
                yield
            finally:
                connections.close_all()  # Those of this thread: the parent forks.
                self._current = self._busy_since = None

    def _end(self, work: _Work, error: Exception | None) -> None:
        """What was learnt by a piece of work. Whoever waits for it waits no longer, and has not lost patience
        after this."""
        with self._changed:
            if error is None:
                self._patience.answered()
            else:
                self._patience.failed(self._clock())
            work.done.set()

    def _next(self) -> _Work | None:
        """The next piece of work. First what is new: somebody waits for it."""
        now = self._clock()
        if self._new:
            return self._new.popleft()
        for each in list(self._soon):
            if each[0] <= now:
                self._soon.remove(each)
                return _Work(each[1])
        if self._owed and self._patience.seconds_from <= now:
            if self._patience.seconds_from > 0:
                self._patience.lost()  # Nobody waits for this try.
            return _Work(self._owed.popleft())
        return None

    def _nap(self) -> float | None:
        due = min((at for at, _ in self._soon), default=inf)
        if self._owed:
            due = min(due, self._patience.seconds_from)
        return None if due == inf else max(0.0, due - self._clock())

    def _do(self, work: _Work) -> None:
        if isinstance(work.what, _Question):
            failure = work.what.run()
            self._end(work, failure if failure is not None and is_passing(failure) else None)
            return
        outcome, until = work.what, self._patience.seconds_from
        reach = until <= self._clock() or until == inf
        error = outcome.tell(reach=reach)
        dropped = []
        with self._changed:
            if isinstance(error, ChordNotYet):
                self._soon.append((self._clock() + _CHORD_AGAIN_SECONDS, outcome))
                error = None
            elif error is not None:
                self._owed.append(outcome)
                if len(self._owed) > self._most:
                    dropped.append(self._owed.popleft())
            work.done.set()
            # Also where somebody has lost patience meanwhile: until that is over the backend is not asked.
            if reach or self._patience.seconds_from == inf:
                self._end(work, error)
        if error is not None and reach:
            self._say_silent(error)
        self._drop(dropped, f"more than {self._most} are owed")

    def _say_silent(self, error: Exception | None = None) -> None:
        now = self._clock()
        if now >= self._silent_until:
            self._silent_until = now + _SAID_EVERY_SECONDS
            logger.warning(
                "the result backend does not answer%s; how messages ended is told when it does (%d owed)",
                "" if error is None else f" ({type(error).__name__})",
                len(self),
            )

    def _drop(self, outcomes: list[Outcome], why: str) -> None:
        if outcomes:
            logger.error(
                "how %d messages ended is not told to the result backend (%s); their letters are kept: %s%s",
                len(outcomes),
                why,
                ", ".join(f"{each.name}[{each.id}]" for each in outcomes[:_MOST_NAMED]),
                ", ..." if len(outcomes) > _MOST_NAMED else "",
            )


_tellers: WeakSet[Teller] = WeakSet()
_all: WeakKeyDictionary[Celery, Teller] = WeakKeyDictionary()
_held: list[Any] = []


def teller_for(app: Celery) -> Teller:
    """That of an app's worker in this process."""
    found = _all.get(app)
    if found is None:
        found = _all[app] = Teller(app)
    return found


def _before_fork() -> None:
    for teller in list(_tellers):
        since = teller._busy_since
        spent = 0.0 if since is None else teller._clock() - since
        if teller._thread is not None and teller._gate.acquire(timeout=max(0.0, FORK_SECONDS - spent)):
            _held.append(teller._gate)


def _after_fork() -> None:
    while _held:
        _held.pop().release()


def _after_fork_in_child() -> None:
    _after_fork()
    for teller in list(_tellers):
        teller._changed = threading.Condition()
        teller._gate = threading.Lock()
        teller._thread = teller._current = teller._busy_since = None
        teller._new.clear()
        teller._owed.clear()
        teller._soon.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
