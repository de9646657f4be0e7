"""Prefork's own pool as the connection breaks: a child's end is told, what is half sent is finished."""

from __future__ import annotations

import gc
import inspect
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.concurrency.asynpool import AsynPool
from celery.worker import loops
from celery.worker.consumer import Consumer
from celery.worker.consumer.consumer import Evloop
from kombu.asynchronous import Hub, set_event_loop

from hardening.leases.children import watch_again
from hardening.leases.consumer import hardened_consumer
from hardening.leases.halfway import go_on_writing, keep_readings
from hardening.leases.terms import Lease
from tests.helpers.wait import wait_until

asynpool: Any = AsynPool

LARGE = 3_000_000
"""Bytes: much more than a pipe holds."""


def unseen() -> None:
    """In a child: close its end of the sentinel, as the kernel does before it can be reaped; stay."""
    frame: Any = sys._getframe()
    while frame.f_code.co_name != "_launch":
        frame = frame.f_back
    os.close(frame.f_locals["child_w"])
    time.sleep(60)


@pytest.fixture
def hub() -> Iterator[Any]:
    found = Hub()
    set_event_loop(found)
    yield found
    found.close()
    set_event_loop(None)


@pytest.fixture
def pool(hub: Any) -> Iterator[Any]:
    processes = asynpool(2, threads=False)
    found = SimpleNamespace(_pool=processes)
    keep_readings(found)
    processes.register_with_event_loop(hub)
    yield found
    for child in processes._pool:
        os.kill(child.pid, signal.SIGKILL)
    processes.terminate()
    gc.collect()


def turn_until(hub: Any, holds: Any, timeout: float = 20) -> Any:
    """Let the loop of the pool turn. Its timers are slower than what the tests wait for."""
    hub.call_repeatedly(0.05, lambda: None)

    def turned() -> Any:
        hub.run_once()
        return holds()

    return wait_until(turned, timeout)


def run_unseen(hub: Any, pool: Any) -> tuple[Any, list[Any]]:
    """A child that works, and whose sentinel is closed already; the ends of its job."""
    ends: list[Any] = []
    accepted: list[int] = []
    pool._pool.apply_async(
        unseen,
        accept_callback=lambda pid, *_: accepted.append(pid),
        error_callback=lambda einfo: ends.append(einfo.exception),
    )
    (pid,) = turn_until(hub, lambda: accepted)
    child = next(each for each in pool._pool._pool if each.pid == pid)
    turn_until(hub, lambda: child._sentinel_poll is None)
    assert child in pool._pool._pool
    return child, ends


def test_celery_meets_a_child_without_a_sentinel_with_an_error_that_ends_a_worker(hub, pool) -> None:
    run_unseen(hub, pool)
    hub.reset()

    with pytest.raises(ValueError, match="file descriptor is None"):
        pool._pool.register_with_event_loop(hub)


def test_a_child_that_died_at_a_reconnect_is_told_at_once_and_replaced(hub, pool) -> None:
    child, ends = run_unseen(hub, pool)
    hub.reset()
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    began = time.monotonic()

    watch_again(pool)
    pool._pool.register_with_event_loop(hub)

    turn_until(hub, lambda: ends)
    assert "signal 9" in str(ends[0])
    assert time.monotonic() - began < 4, "it was told by the pool's timer, which takes 5 s"
    assert child not in pool._pool._pool
    assert len(pool._pool._pool) == 2


def test_a_child_that_runs_on_without_its_sentinel_is_left_to_its_work(hub, pool) -> None:
    child, ends = run_unseen(hub, pool)
    for _ in range(2):
        hub.reset()
        watch_again(pool)
        pool._pool.register_with_event_loop(hub)
        turn_until(hub, lambda: child._sentinel_poll is None)

    assert child in pool._pool._pool
    assert child._is_alive()
    assert ends == []


def test_a_child_that_was_joined_but_is_in_the_pool_still_is_taken_out(hub, pool) -> None:
    child, ends = run_unseen(hub, pool)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert child._popen.sentinel is None
    hub.reset()

    watch_again(pool)
    pool._pool.register_with_event_loop(hub)

    turn_until(hub, lambda: ends)
    assert child not in pool._pool._pool


def test_children_that_are_watched_keep_their_sentinels(hub, pool) -> None:
    before = [child._sentinel_poll for child in pool._pool._pool]

    watch_again(pool)

    assert [child._sentinel_poll for child in pool._pool._pool] == before
    assert None not in before


def test_a_child_that_was_never_watched_and_other_pools_are_left_alone() -> None:
    fresh = SimpleNamespace()
    watch_again(SimpleNamespace(_pool=SimpleNamespace(_pool=[fresh], _track_child_process=None)))
    watch_again(SimpleNamespace(_pool=None))
    watch_again(SimpleNamespace())

    assert vars(fresh) == {}


def test_an_error_of_the_system_is_not_hidden() -> None:
    broken = SimpleNamespace(_sentinel_poll=None, _popen=SimpleNamespace(sentinel=10**6))

    with pytest.raises(OSError, match="Bad file descriptor"):
        watch_again(SimpleNamespace(_pool=SimpleNamespace(_pool=[broken], _track_child_process=None)))


def reconnect(hub: Any, pool: Any, *, finish: bool = True) -> None:
    """As Celery does where messages are leased."""
    hub.reset()
    hub._loop = None
    keep_readings(pool)
    if not finish:
        del pool._pool._result_handler._recv_message
    pool._pool.register_with_event_loop(hub)
    if finish:
        go_on_writing(pool, hub)


def in_pieces(hub: Any, pool: Any, *, result: bool) -> tuple[Any, list[int]]:
    """A job or a result of which a part is through its pipe, with the children stopped; the ends told."""
    ends: list[int] = []
    function, args = (bytes, (LARGE,)) if result else (len, (b"x" * LARGE,))
    turn_until(hub, lambda: len(pool._pool._all_inqueues) == 2)
    children = list(pool._pool._pool)
    if not result:
        for child in children:
            os.kill(child.pid, signal.SIGSTOP)

    def give() -> None:
        pool._pool.apply_async(
            function, args, callback=lambda value: ends.append(len(value) if result else value)
        )

    def half_read() -> bool:
        if ends:  # It was read whole within one turn, as happens on a busy machine.
            ends.clear()
            give()
        return any(inspect.isgenerator(call) for call, _ in hub.readers.values())

    give()
    if result:
        turn_until(hub, half_read)
        for child in children:
            os.kill(child.pid, signal.SIGSTOP)
    else:
        turn_until(hub, lambda: any(inspect.isgenerator(each[0]) for each in hub.writers.values() if each))
    return children, ends


def let_go_on(children: Any) -> None:
    for child in children:
        os.kill(child.pid, signal.SIGCONT)


@pytest.mark.parametrize("result", [False, True], ids=["job", "result"])
def test_what_is_half_sent_as_the_connection_breaks_is_finished(hub, pool, result) -> None:
    children, ends = in_pieces(hub, pool, result=result)

    for _ in range(2):
        reconnect(hub, pool)
    let_go_on(children)

    turn_until(hub, lambda: ends)
    assert ends == [LARGE]
    for number in range(4):  # The pipes are in step.
        pool._pool.apply_async(len, ("x" * number,), callback=lambda value: ends.append(value))
    turn_until(hub, lambda: len(ends) == 5)
    assert sorted(ends[1:]) == [0, 1, 2, 3]


@pytest.mark.parametrize("result", [False, True], ids=["job", "result"])
def test_celery_leaves_it_half_sent(hub, pool, result) -> None:
    children, ends = in_pieces(hub, pool, result=result)

    reconnect(hub, pool, finish=False)
    let_go_on(children)

    with pytest.raises(AssertionError):
        turn_until(hub, lambda: ends, 1)


def test_a_job_half_written_to_a_child_that_died_meanwhile_goes_to_another(hub, pool) -> None:
    children, ends = in_pieces(hub, pool, result=False)
    (job,) = pool._pool._cache.values()
    dead = job._write_to
    hub.reset()
    os.kill(dead.pid, signal.SIGKILL)
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    reconnect(hub, pool)
    let_go_on(each for each in children if each is not dead)

    turn_until(hub, lambda: ends)
    assert ends == [LARGE]


def test_the_consumer_gives_the_sentinels_before_celery_registers_the_children() -> None:
    child = SimpleNamespace(_sentinel_poll=None, _popen=SimpleNamespace(sentinel=None))
    kind = hardened_consumer(Consumer, lease=Lease(), holder="a worker", leased=False)
    consumer = kind.__new__(kind)
    consumer.pool = SimpleNamespace(_pool=SimpleNamespace(_pool=[child], _track_child_process=None))
    for name in ("connection", "task_consumer", "blueprint", "hub", "qos", "amqheartbeat"):
        setattr(consumer, name, None)
    consumer.app = SimpleNamespace(clock=None)
    consumer.amqheartbeat_rate = 2

    consumer.loop_args()

    assert os.read(child._sentinel_poll, 1) == b""
    os.close(child._sentinel_poll)
    assert "c.loop(*c.loop_args())" in inspect.getsource(Evloop.start)
    assert "obj.controller.register_with_event_loop(hub)" in inspect.getsource(loops.asynloop)
