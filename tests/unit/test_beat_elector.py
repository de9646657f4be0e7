"""The election, step by step with a clock of the test's own: who may send, from when and until when."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from beat_leader.clock import StoreClock
from beat_leader.elector import Elector
from beat_leader.lock import LockUnavailable
from beat_leader.locks.memory import MemoryLock
from beat_leader.stores.memory import Register, Ticks
from beat_leader.term import Timings
from beat_leader.ticks import OldEpoch, TicksUnavailable
from tests.helpers.wait import wait_until

TIMINGS = Timings(lease_seconds=6.0, renew_seconds=2.0, margin_seconds=1.0)


class World:
    """One clock for all; a lock whose answers may be lost or late, and a tick store that may be away."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.lock = MemoryLock(lambda: self.now)
        self.ticks, self.register = Ticks(), Register()
        self.lock_is_away = self.answers_are_lost = self.ticks_are_away = False
        self.answer_takes = 0.0

    def beat(self, name: str, stuck_seconds: float = 60.0) -> Any:
        lock: Any = _Lock(self)
        ticks: Any = _Ticks(self)
        return Elector(
            lock,
            ticks,
            self.register,
            holder=name,
            timings=TIMINGS,
            clock=StoreClock(),
            stuck_seconds=stuck_seconds,
            now=lambda: self.now,
        )


def _epoch(beat: Any) -> int:
    return int(beat.term.epoch)


class _Lock:
    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._world.lock_is_away:
                raise LockUnavailable("away")
            answer = getattr(self._world.lock, name)(*args, **kwargs)
            self._world.now += self._world.answer_takes
            if self._world.answers_are_lost:
                raise LockUnavailable("lost")
            return answer

        return call


class _Ticks:
    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        if self._world.ticks_are_away:
            raise TicksUnavailable("away")
        return getattr(self._world.ticks, name)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def leader(world) -> Any:
    beat = world.beat("a")
    beat.turn()
    assert beat.term is not None
    return beat


def test_impossible_timings_are_refused(world) -> None:
    with pytest.raises(ValueError, match="third of the lease"):
        Elector(
            world.lock,
            world.ticks,
            world.register,
            holder="a",
            timings=Timings(lease_seconds=6, renew_seconds=3),
            clock=StoreClock(),
        )


def test_the_winner_is_told_in_the_store_and_in_the_register_before_its_term_is_seen(world) -> None:
    a, b = world.beat("a"), world.beat("b")
    assert a.turn() == 2.0
    assert b.turn() <= 0.55

    assert (a.term.epoch, a.leader, b.term, b.leader, b.epoch) == (1, "a", None, "a", 1)
    assert world.ticks.newest_epoch() == 1
    assert [(term.epoch, term.holder) for term in world.register.terms()] == [(1, "a")]


def test_trust_ends_before_the_lease_and_counts_from_before_the_request(world) -> None:
    a = world.beat("a")
    world.answer_takes = 0.75
    a.turn()

    world.now = 1004.99
    assert a.term is not None
    world.now = 1005.0
    assert a.term is None
    assert world.lock.look().remaining_seconds >= 1.0


def test_a_slow_renewal_does_not_extend_trust_beyond_its_lease(world, leader) -> None:
    world.now = 1002.0
    world.answer_takes = 2.5
    assert leader.turn() == 0.0

    assert leader.term.trusted_until == 1007.0


def test_an_answer_that_comes_after_the_lease_is_over_makes_no_term(world, leader) -> None:
    world.now = 1002.0
    world.answer_takes = 7.0
    leader.turn()
    assert leader.term is None

    world.answer_takes = 0.0
    b = world.beat("b")
    b.turn()
    assert (b.term.epoch, leader.term) == (2, None)
    leader.turn()
    assert leader.term is None
    assert {term.epoch: term.end for term in world.register.terms()} == {1: "lost", 2: ""}


def test_who_slept_longer_than_its_lease_wakes_up_without_a_term(world, leader) -> None:
    world.now += 60.0

    assert leader.term is None
    assert leader.wait(0.0) is None


def test_a_leader_that_cannot_renew_is_trusted_as_long_as_it_was_and_no_longer(world, leader) -> None:
    world.now, world.lock_is_away = 1002.0, True
    assert leader.turn() == 0.5
    assert leader.term is not None
    assert leader.problem == "away"

    world.now = 1005.0
    assert leader.term is None
    leader.turn()
    leader.turn()
    assert leader.term is None
    world.lock_is_away = False
    leader.turn()
    assert (_epoch(leader), leader.problem) == (2, "")


def test_a_win_whose_answer_was_lost_is_asked_for_again_and_is_a_later_epoch(world) -> None:
    a = world.beat("a")
    world.answers_are_lost = True
    a.turn()
    assert a.term is None
    world.answers_are_lost = False

    a.turn()

    assert _epoch(a) == 2


def test_without_the_tick_store_nobody_asks_for_the_lock(world) -> None:
    a = world.beat("a")
    world.ticks_are_away = True

    assert a.turn() == 0.5

    assert (a.term, a.problem, world.lock.look().epoch) == (None, "away", 0)


@pytest.mark.parametrize("error", [TicksUnavailable("away"), OldEpoch(1, 9), RuntimeError("a bug")])
def test_a_winner_that_cannot_open_its_term_gives_the_lease_back(world, monkeypatch, error) -> None:
    def fails(epoch: int) -> None:
        raise error

    monkeypatch.setattr(world.ticks, "open_term", fails)
    a = world.beat("a")
    try:
        a.turn()
    except RuntimeError:
        assert isinstance(error, RuntimeError)

    assert a.term is None
    assert world.lock.look().holder == ""


def test_a_lock_that_forgot_everything_gives_a_later_epoch_and_ends_the_older_one(world, leader) -> None:
    world.lock.__init__(lambda: world.now)
    b = world.beat("b")
    b.turn()
    assert b.term.epoch == 2

    leader.turn()

    assert leader.term is None


def test_a_leader_of_an_epoch_older_than_the_tick_store_has_seen_makes_room(world, leader) -> None:
    world.ticks.open_term(7)
    world.now += 2

    leader.turn()

    assert (leader.term, world.lock.look().holder) == (None, "")
    leader.turn()
    assert leader.term.epoch == 8


def test_a_leader_whose_tick_does_not_end_resigns_and_stands_again_when_it_has(world) -> None:
    a = world.beat("a", stuck_seconds=5.0)
    a.turn()
    a.ticked()
    for _ in range(2):
        world.now += 2.0
        a.turn()
    assert a.term is not None

    world.now += 2.0
    a.turn()
    assert (a.term, world.lock.look().holder) == (None, "")
    assert "has not ended" in a.problem
    a.turn()
    assert world.lock.look().holder == ""

    a.ticked()
    a.turn()
    assert (a.term.epoch, a.problem) == (2, "")
    assert [term.end for term in world.register.terms()] == ["", "stuck"]


def test_a_term_that_is_of_no_use_is_given_back_at_once_and_others_stand_first(world, leader) -> None:
    leader.give_back("it cannot write")
    leader.turn()
    assert (leader.term, leader.problem) == (None, "it cannot write")
    leader.turn()
    assert world.lock.look().holder == ""

    world.now += 1.0
    leader.turn()
    leader.turn()
    assert _epoch(leader) == 2
    assert [term.end for term in world.register.terms()] == ["", "unable"]


def test_who_is_asked_to_resign_lets_its_tick_end_first_and_does_not_stand_for_two_leases(
    world, leader
) -> None:
    world.register.ask_to_resign(1, "ann")
    world.now += 2.0
    turning = threading.Thread(target=leader.turn)
    turning.start()
    wait_until(lambda: leader.term is None)
    assert world.lock.look().holder == "a"

    leader.ticked()
    turning.join()

    assert (world.lock.look().holder, world.register.terms()[0].end) == ("", "resigned")
    world.now += 11.9
    leader.turn()
    assert leader.term is None
    world.now += 0.2
    leader.ticked()
    leader.turn()
    assert _epoch(leader) == 2


def test_a_register_that_fails_ends_no_term(world, monkeypatch, caplog) -> None:
    def fails(*args: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(world.register, "term_began", fails)
    a = world.beat("a")
    a.turn()

    assert a.term is not None
    assert "register of Beats failed" in caplog.text


def test_two_that_won_the_same_epoch_of_a_lock_that_forgot_do_not_both_lead(world, monkeypatch) -> None:
    a, b = world.beat("a"), world.beat("b")
    real = world.ticks.open_term
    meanwhile = iter([True])

    def open_term(epoch: int) -> None:
        if next(meanwhile, False):  # "a" has won, and has not opened its term.
            world.lock.__init__(lambda: world.now)
            b.turn()
        real(epoch)

    monkeypatch.setattr(world.ticks, "open_term", open_term)
    a.turn()

    assert (a.term, b.term.epoch) == (None, 1)
    assert world.lock.look().holder == "b"


def test_an_epoch_that_the_tick_store_has_seen_already_is_not_led_in(world, monkeypatch) -> None:
    b = world.beat("b")
    real = world.lock.acquire

    def acquire(holder: str, **kwargs: Any) -> Any:
        world.ticks.open_term(1)  # Another won, opened its term, and was forgotten by the lock.
        return real(holder, **kwargs)

    monkeypatch.setattr(world.lock, "acquire", acquire)
    b.turn()
    assert (b.term, world.lock.look().holder) == (None, "")
    b.turn()
    assert b.term.epoch == 2
