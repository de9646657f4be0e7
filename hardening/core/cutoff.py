"""Ends what waits on a socket for too long: for drivers whose reads know no time-out."""

from __future__ import annotations

import _thread
import os
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

__all__ = ["CutOff", "can_be_cut_off"]


def can_be_cut_off(connection: Any) -> bool:
    """Whether a driver's connection tells its socket."""
    return hasattr(_socket_of(connection), "fileno")


class CutOff:
    """Shuts a watched connection's socket down after so many seconds, unless the block has ended.

    A server that is stopped still takes packets, so neither TCP nor libpq's options end a read from it.
    A thread (a greenlet, where gevent has patched them) does: the driver sees its connection end and
    raises its own error. It holds the socket under a number of its own, which nobody else can close and
    use anew for another socket meanwhile. A child that is forked meanwhile has no such thread, and does
    not go on with the block either.

    It is one of the low-level kind, in half the time that a threading.Timer takes to come and go: each dead
    letter needs one. The block does not end before it has.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._socket: socket.socket | None = None
        self._began = False
        self._over = threading.Lock()
        self._gone = threading.Lock()
        self._over.acquire()
        self._gone.acquire()

    def watch(self, connection: Any) -> None:
        """Begin. Of a connection that tells no socket nothing is watched."""
        if self._socket is not None or not can_be_cut_off(connection):
            return
        self._socket = socket.socket(fileno=os.dup(_socket_of(connection).fileno()))
        _thread.start_new_thread(self._cut_in_time, (self._socket,))
        self._began = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._socket is not None:
            self._over.release()
            if self._began:
                self._gone.acquire()
            self._socket.close()

    def _cut_in_time(self, watched: socket.socket) -> None:
        try:
            if not self._over.acquire(timeout=self._seconds):
                with suppress(OSError):  # The other side ended it first.
                    watched.shutdown(socket.SHUT_RDWR)
        finally:
            self._gone.release()


def _socket_of(connection: Any) -> Any:
    # psycopg and mysqlclient tell it by fileno(). PyMySQL has it under this name, which is not public.
    return connection if hasattr(connection, "fileno") else getattr(connection, "_sock", None)
