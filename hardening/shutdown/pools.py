"""What each pool can do to a running task: end it, or only leave it behind."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Protocol

from celery import signals

__all__ = ["Hands", "hands_on", "pool_name"]


class Hands(Protocol):
    """The worker's hands on one pool."""

    cuts: bool
    """Whether a running task can be ended."""

    starts_for_sure: bool
    """Whether what the pool was given can no longer be kept from starting."""

    def cut(self, request: Any) -> None:
        """End a running task, without waiting for it. May be called again."""
        ...

    def abandon(self, worker: Any) -> None:
        """Let the worker end without tasks that could not be ended."""
        ...

    def kill(self) -> None:
        """End what would outlive this process."""
        ...


class _Prefork:
    """A child is killed. SIGKILL, since a task may have any other signal blocked."""

    cuts = True
    starts_for_sure = True

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def cut(self, request: Any) -> None:
        if request.worker_pid:
            self._pool.terminate_job(request.worker_pid, signal.SIGKILL)

    def abandon(self, worker: Any) -> None:
        self.kill()

    def kill(self) -> None:
        for process in list(getattr(self._pool._pool, "_pool", None) or ()):
            try:
                os.kill(process.pid, signal.SIGKILL)
            except (ProcessLookupError, TypeError):  # Gone, or never started.
                continue


class _Gevent:
    """A greenlet is killed where it waits. One that never waits, or takes the kill for an error of its own,
    stays; it ends with the process."""

    cuts = True
    starts_for_sure = False

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def cut(self, request: Any) -> None:
        if request.worker_pid and not request.was_cut:
            self._pool.terminate_job(request.worker_pid)

    def abandon(self, worker: Any) -> None:
        self._pool.on_stop = _nothing

    def kill(self) -> None:
        pass


class _Threads:
    """A thread cannot be ended from outside. Its message goes back, and the process ends under it."""

    cuts = False
    starts_for_sure = False

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def cut(self, request: Any) -> None:
        pass

    def abandon(self, worker: Any) -> None:
        self._pool.executor.shutdown(wait=False, cancel_futures=True)
        self._pool.on_stop = _nothing
        # The last thing that a worker does. The interpreter would then wait for every thread.
        signals.worker_shutdown.connect(_leave(worker), weak=False)

    def kill(self) -> None:
        pass


class _Solo:
    """The task runs in the main thread: while it does, nothing of the drain comes to run. See `overdue`."""

    cuts = False
    starts_for_sure = True

    def cut(self, request: Any) -> None:
        pass

    def abandon(self, worker: Any) -> None:
        pass

    def kill(self) -> None:
        pass


def _nothing() -> None:
    pass


def _leave(worker: Any) -> Callable[..., None]:
    pid = os.getpid()

    def leave(**_: Any) -> None:
        if os.getpid() != pid:
            return
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(int(worker.exitcode or 0))

    return leave


def pool_name(pool: Any) -> str:
    """ "prefork", "gevent", "thread", "solo", or what else the pool's module is called."""
    return type(pool).__module__.rpartition(".")[2]


def hands_on(pool: Any) -> Hands | None:
    """The hands on a worker's pool. None for one that we do not know: it stops as Celery stops it."""
    kinds: dict[str, Callable[[], Hands]] = {
        "prefork": lambda: _Prefork(pool),
        "gevent": lambda: _Gevent(pool),
        "thread": lambda: _Threads(pool),
        "solo": _Solo,
    }
    kind = kinds.get(pool_name(pool))
    return None if kind is None else kind()
