"""The signals that stop a worker, led to its drain.

On prefork, threads and solo Celery's warm handlers stay, for what they say and send; only the flag that
they set, at which Celery's loop ends at once, is taken back while the drain goes on. SIGQUIT is Celery's.

On gevent all of Celery's handlers are replaced. They run in the hub, which may not wait, and its cold one
does: for the soft time-out, the broker's answer, the pool. It raises there, or waits for itself for ever,
and meanwhile Celery acknowledges the greenlets that it killed. Here a handler only says what is asked for
and wakes a greenlet, and a cold shutdown is a drain whose grace period is Celery's soft time-out, or none.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import celery.apps.worker
from billiard.common import REMAP_SIGTERM
from celery import signals
from celery.platforms import EX_FAILURE, EX_OK
from celery.worker import state

from .drain import Drain
from .pools import pool_name
from .watchdog import watch

__all__ = ["lead_to"]

logger = logging.getLogger("hardening")

GREEN_TURN_SECONDS = 0.1

# Without types in its stubs.
_say_safely: Any = getattr(celery.apps.worker, "safe_say")  # noqa: B009
_flags: Any = state

_WARM, _COLD = "worker_Warm", "worker_Cold"
"""How Celery calls its handlers."""


def lead_to(drain: Drain, *, grace: float | None) -> None:
    """Lead the signals to a drain, where Celery has handlers for them: not in an embedded worker."""
    if threading.current_thread() is not threading.main_thread():
        return
    if pool_name(drain.worker.pool) == "gevent":
        _Green(drain, grace).install()
        return
    watched = _Watched(drain, _wake_main_thread)
    for name, exitcode in (("SIGTERM", EX_OK), ("SIGINT", EX_FAILURE)):
        number = signal.Signals[name]
        celerys = signal.getsignal(number)
        if getattr(celerys, "__name__", "") == _WARM:
            signal.signal(number, _warm(drain, celerys, exitcode, grace, watched))


class _Watched:
    """Starts the watchdog, once there is a deadline."""

    def __init__(self, drain: Drain, wake: Callable[[], None]) -> None:
        self._drain = drain
        self._wake = wake
        self._on = False

    def ensure(self) -> None:
        if not self._on and self._drain.deadline is not None:
            self._on = True
            watch(self._drain, self._wake)


def _warm(
    drain: Drain, celerys: Any, exitcode: int, grace: float | None, watched: _Watched
) -> Callable[..., None]:
    pid = os.getpid()

    def handler(number: int, frame: Any) -> None:
        if os.getpid() != pid:  # A child of the pool that has just been forked.
            celerys(number, frame)
            return
        if drain.overdue:
            drain.wake()
            return
        before = _flags.should_stop
        celerys(number, frame)
        if drain.ask(exitcode=exitcode, grace=grace):
            _flags.should_stop = before
        watched.ensure()

    handler.__name__ = _WARM
    return handler


def _wake_main_thread() -> None:
    # To that thread: a system call of another one would not be interrupted in the main thread's place.
    ident = threading.main_thread().ident
    if ident is not None:
        signal.pthread_kill(ident, signal.SIGTERM)


class _Green:
    """The handlers of a gevent worker."""

    def __init__(self, drain: Drain, grace: float | None) -> None:
        self._drain = drain
        self._grace = grace
        self._cold = 0
        self._interrupted = False
        self._awake = False
        self._announcements: list[dict[str, Any]] = []
        self._watched = _Watched(drain, _nothing)
        self._pid = os.getpid()
        self._bell: Any = None

    def install(self) -> None:
        import gevent

        # Made for this: it may be rung from anywhere, and the loop runs what hangs on it.
        self._bell = gevent.get_hub().loop.async_(ref=False)
        self._bell.start(lambda: gevent.spawn(self._attend))
        term = self._quit if REMAP_SIGTERM == "SIGQUIT" else self._term
        for name, handler in (("SIGTERM", term), ("SIGINT", self._int), ("SIGQUIT", self._quit)):
            number = signal.Signals[name]
            if getattr(signal.getsignal(number), "__name__", "") in (_WARM, _COLD):
                signal.signal(number, handler)

    def _term(self, number: int, frame: Any) -> None:
        self._stop(number, "Warm", EX_OK, self._grace)

    def _int(self, number: int, frame: Any) -> None:
        if self._interrupted:
            self._quit(number, frame)
            return
        self._interrupted = True
        _say("worker: Hitting Ctrl+C again will initiate cold shutdown, terminating all running tasks!")
        self._stop(number, "Warm", EX_FAILURE, self._grace)

    def _quit(self, number: int, frame: Any) -> None:
        self._cold += 1
        if self._cold > 2:  # Whoever asks three times does not want to wait for anything.
            os._exit(EX_FAILURE)
        soft = float(self._drain.worker.app.conf.worker_soft_shutdown_timeout or 0)
        self._stop(number, "Cold", EX_FAILURE, soft if self._cold == 1 else 0.0)

    def _stop(self, number: int, how: str, exitcode: int, grace: float | None) -> None:
        if os.getpid() != self._pid:
            return
        _say(f"worker: {how} shutdown (MainProcess)")
        self._announcements.append({"sig": signal.Signals(number).name, "how": how, "exitcode": exitcode})
        if not self._drain.ask(exitcode=exitcode, grace=grace):
            _flags.should_stop = exitcode
        self._watched.ensure()
        self._bell.send()

    def _attend(self) -> None:
        """In a greenlet of its own: announce what was asked for, and drain."""
        import gevent

        while self._announcements:
            signals.worker_shutting_down.send(
                sender=self._drain.worker.hostname, **self._announcements.pop(0)
            )
        if self._awake:
            return
        self._awake = True
        while not self._drain.finished:
            try:
                self._drain.turn()
            # As in the timer's loop: the next turn tries again.
            except Exception:
                logger.exception("a turn of the drain failed")
            gevent.sleep(GREEN_TURN_SECONDS)


def _say(text: str) -> None:
    _say_safely(text, sys.__stdout__)


def _nothing() -> None:
    """A hub that is held up by a greenlet has nothing to be woken for."""
