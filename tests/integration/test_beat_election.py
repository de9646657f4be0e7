"""Beats that elect over a real Redis, with their threads: one is silent, one resigns, one is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator

import pytest

from beat_leader.clock import StoreClock, steady
from beat_leader.elector import Elector
from beat_leader.locks.redis import RedisLock
from beat_leader.stores.memory import Register, Ticks
from beat_leader.term import Timings
from hardening.testing.servers import RedisServer
from tests.helpers.wait import wait_until

TIMINGS = Timings(lease_seconds=1.5, renew_seconds=0.4, margin_seconds=0.4)

STANDING = """
import sys, time
from beat_leader.clock import StoreClock, steady
from beat_leader.elector import Elector
from beat_leader.locks.redis import RedisLock
from beat_leader.stores.memory import Register, Ticks
from beat_leader.term import Timings

timings = Timings(lease_seconds=1.5, renew_seconds=0.4, margin_seconds=0.4)
lock = RedisLock(url=sys.argv[1])
elector = Elector(lock, Ticks(), Register(), holder="child", timings=timings, clock=StoreClock())
elector.start()
while True:
    began = steady()
    term = elector.term
    print(began, term.epoch if term else 0, elector.leader or "-", flush=True)
    time.sleep(0.002)
"""


@pytest.fixture
def beat() -> Iterator[Callable[..., Elector]]:
    made: list[Elector] = []
    ticks, register = Ticks(), Register()

    def make(name: str, url: str) -> Elector:
        lock = RedisLock(url=url)
        clock = StoreClock()
        elector = Elector(lock, ticks, register, holder=name, timings=TIMINGS, clock=clock)
        made.append(elector)
        elector.start()
        return elector

    yield make
    for elector in made:
        elector.stop()


def test_a_standby_leads_soon_after_a_silent_leaders_lease_or_a_resignation(beat, redis_url) -> None:
    dead = RedisLock(url=redis_url)
    dead.acquire("dead", lease_seconds=TIMINGS.lease_seconds)
    dead.close()

    first = beat("first", redis_url)
    assert first.wait(0.5) is None
    assert first.leader == "dead"
    term = first.wait(1.5)
    assert term is not None
    assert term.epoch == 2

    second = beat("second", redis_url)
    time.sleep(2 * TIMINGS.lease_seconds)  # Renewals keep it.
    assert first.term is not None
    assert first.term.epoch == 2
    assert second.term is None

    resigned_at = time.monotonic()
    first.stop()
    term = second.wait(2.0)
    assert time.monotonic() - resigned_at < 1.0
    assert term is not None
    assert (first.term, term.epoch) == (None, 3)


def test_a_leader_whose_redis_falls_silent_is_out_before_its_lease_and_leads_again_after_it(
    beat, make_redis
) -> None:
    server: RedisServer = make_redis()
    leader = beat("a", server.url)
    assert leader.wait(5.0) is not None

    server.pause()
    try:
        paused_at = time.monotonic()
        wait_until(lambda: leader.term is None)
        assert time.monotonic() - paused_at < TIMINGS.lease_seconds
        wait_until(lambda: "cannot be used now" in leader.problem)
    finally:
        server.resume()

    term = leader.wait(10.0)
    assert term is not None
    assert term.epoch > 1


def test_a_leader_that_was_stopped_for_longer_than_its_lease_never_sees_its_term_again(
    beat, redis_url
) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(STANDING), redis_url], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    try:
        while child.stdout.readline().split()[1:] != ["1", "child"]:
            pass
        ours = beat("ours", redis_url)
        os.kill(child.pid, signal.SIGSTOP)
        term = ours.wait(5.0)
        won_at = steady()
        assert term is not None
        assert term.epoch == 2
        time.sleep(0.3)
        os.kill(child.pid, signal.SIGCONT)

        seen: list[tuple[float, int, str]] = []
        while not seen or seen[-1][2] != "ours":
            began, epoch, leader = child.stdout.readline().split()
            seen.append((float(began), int(epoch), leader))
    finally:
        child.kill()
        child.wait()
        child.stdout.close()

    woken = [(epoch, leader) for began, epoch, leader in seen if began > won_at]
    assert woken
    assert {epoch for epoch, _ in woken} == {0}
