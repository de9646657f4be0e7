"""Who waits on a socket is let go in time, one thread watches for all, and no block that has ended is cut."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardening.core.cutoff import CutOff


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def held_for(near: socket.socket, seconds: float) -> float:
    began = time.monotonic()
    with CutOff(seconds) as cut_off:
        cut_off.watch(near)
        assert near.recv(1) == b""
    return time.monotonic() - began


def number_of(what: str) -> int:
    return len(list(Path("/proc/self", what).iterdir()))


def test_a_silent_socket_is_an_end_in_time_whatever_else_is_watched(pair) -> None:
    near, _ = pair
    other, another = socket.socketpair()
    with other, another, CutOff(30) as patient:
        patient.watch(other)
        time.sleep(0.05)  # The thread sleeps now, for longer than the next one may wait.

        assert 0.2 <= held_for(near, 0.2) < 3
        another.send(b"x")
        assert other.recv(1) == b"x"


def test_what_has_ended_is_not_cut_and_leaves_neither_thread_nor_number(pair) -> None:
    near, far = pair

    def use() -> None:
        with CutOff(0.2) as cut_off:
            cut_off.watch(near)

    use()
    before = number_of("task"), number_of("fd")
    for _ in range(50):
        use()
    assert (number_of("task"), number_of("fd")) == before
    time.sleep(0.3)
    far.send(b"x")
    assert near.recv(1) == b"x"


def test_a_process_that_forks_has_no_thread_of_it_and_what_is_watched_stays_so(pair) -> None:
    near, _ = pair
    durations: list[float] = []
    waiter = threading.Thread(target=lambda: durations.append(held_for(near, 0.3)))
    alone = number_of("task")
    waiter.start()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        own, _other = socket.socketpair()
        os.write(writer, b"cut" if held_for(own, 0.1) >= 0.1 else b"not")
        os._exit(0)
    os.waitpid(child, 0)
    waiter.join(10)

    assert durations
    assert durations[0] >= 0.3
    assert os.read(reader, 3) == b"cut"
    os.close(reader)
    os.close(writer)
    assert number_of("task") <= alone + 1
