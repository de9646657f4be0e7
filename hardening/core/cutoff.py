"""Ends what waits on a socket for too long: for drivers whose reads know no time-out."""

from __future__ import annotations

import _socket
import math
import os
import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

__all__ = ["CutOff", "can_be_cut_off"]

_LINGER_SECONDS = 5.0
_POLL_SECONDS = 0.001
_POLLS = 500


def can_be_cut_off(connection: Any) -> bool:
    """Whether a driver's connection tells its socket."""
    return hasattr(_socket_of(connection), "fileno")


class CutOff:
    """Shuts a watched connection's socket down after so many seconds, unless the block has ended.

    A server that is stopped still takes packets, so neither TCP nor libpq's options end a read from it.
    A thread does: the driver sees its connection end and raises its own error. It holds the socket under a
    number of its own, which nobody else can close and use anew for another socket meanwhile. A child that is
    forked meanwhile has no such thread, and does not go on with the block either.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._socket: _socket.socket | None = None
        self.deadline = math.inf
        self._is_cut = False

    def watch(self, connection: Any) -> None:
        """Begin. Of a connection that tells no socket nothing is watched."""
        if self._socket is not None or not can_be_cut_off(connection):
            return
        number = os.dup(_socket_of(connection).fileno())
        # Named, or it would ask the system for what a shutdown need not know.
        self._socket = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM, 0, number)
        self.deadline = time.monotonic() + self._seconds
        _watcher.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._socket is None:
            return
        if not _watcher.forget(self):
            self._let_it_cut()
        self._socket.close()

    def _let_it_cut(self) -> None:
        # Not later, when others use the connection. Bounded: the thread may be lost in a fork.
        for _ in range(_POLLS):
            if self._is_cut:
                break
            time.sleep(_POLL_SECONDS)

    def cut(self) -> None:
        """For the watcher, when the time is over."""
        try:
            if self._socket is not None:
                with suppress(OSError):  # The other side ended it first.
                    self._socket.shutdown(_socket.SHUT_RDWR)
        finally:
            self._is_cut = True

    def forsake(self) -> None:
        """For a child that was forked in the block: another process has the thread."""
        self._is_cut = True
        if self._socket is not None:
            self._socket.close()


class _Watcher:
    """One thread for all blocks of the process: of a letter's time, a thread for each block took a tenth.

    The argument. What is watched is in `_watched`, and whoever takes it out acts on it: the block, which has
    ended, or the thread, which cuts. Single operations of a dict are atomic. Nobody waits for a lock: on
    gevent a greenlet may lose its turn anywhere, to a finalizer of the garbage collector.

    The thread sleeps until `_awake_at`, and not longer than until the first deadline. Whoever adds an earlier
    one rings. While the thread looks at what is watched, `_awake_at` is never: so whoever adds something that
    it no longer sees, rings. After work it wakes once more for nothing: until then no block need ring.

    It is a thread of the system also where gevent has patched them, and cuts when no greenlet has a turn.
    While the process forks there is none: Python warns of forks beside threads.
    """

    def __init__(self) -> None:
        self._watched: dict[int, CutOff] = {}
        self._awake_at = math.inf
        self._used = False
        self._runs = False
        self._pauses = False
        self._bell = _native("_thread", "allocate_lock")()
        self._bell.acquire()

    def add(self, block: CutOff) -> None:
        self._watched[id(block)] = block
        self._used = True
        if not self._runs:
            self._start()
        elif block.deadline < self._awake_at:
            self._ring()

    def forget(self, block: CutOff) -> bool:
        """Whether it was still watched."""
        return self._watched.pop(id(block), None) is not None

    def pause(self) -> None:
        """The thread ends; whatever is watched stays so."""
        self._pauses = True
        for _ in range(_POLLS):
            if not self._runs:
                break
            self._ring()
            _native("time", "sleep")(_POLL_SECONDS)

    def resume(self) -> None:
        self._pauses = False
        self._go_on()

    def forsake(self) -> None:
        """In a child: there is no thread, and the blocks are the parent's."""
        for block in self._watched.values():
            block.forsake()

    def _go_on(self) -> None:
        if self._watched and not self._runs and not self._pauses:
            self._start()

    def _start(self) -> None:
        self._runs = True
        try:
            _native("_thread", "start_new_thread")(self._run, ())
        except BaseException:
            self._runs = False
            raise

    def _ring(self) -> None:
        with suppress(RuntimeError):  # It has been rung already.
            self._bell.release()

    def _run(self) -> None:
        while not self._pauses:
            now = time.monotonic()
            self._awake_at = math.inf
            self._awake_at = ahead = self._cut_overdue(now)
            self._bell.acquire(timeout=-1 if ahead == math.inf else max(0.0, ahead - now))
        self._runs = False
        self._go_on()

    def _cut_overdue(self, now: float) -> float:
        """Returns when to look again."""
        used, self._used = self._used, False
        ahead = now + _LINGER_SECONDS if used else math.inf
        for block in self._watched.copy().values():
            if block.deadline > now:
                ahead = min(ahead, block.deadline)
            elif self.forget(block):
                block.cut()
        return ahead


def _native(module: str, name: str) -> Any:
    """Of the system's threads, also where gevent has put its own in their places."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey.get_original(module, name) if monkey is not None else getattr(sys.modules[module], name)


def _socket_of(connection: Any) -> Any:
    # psycopg and mysqlclient tell it by fileno(). PyMySQL has it under this name, which is not public.
    return connection if hasattr(connection, "fileno") else getattr(connection, "_sock", None)


_watcher = _Watcher()


def _start_anew() -> None:
    global _watcher
    _watcher.forsake()
    _watcher = _Watcher()


os.register_at_fork(
    before=lambda: _watcher.pause(),
    after_in_parent=lambda: _watcher.resume(),
    after_in_child=_start_anew,
)
