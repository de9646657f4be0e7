"""Held messages are tried again with growing pauses, one failure a turn, and settled once kept."""

from __future__ import annotations

import pytest

from hardening.capture import LetterNotKept
from hardening.core.letter import dump_letter
from hardening.holding import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, Holding, holding_for
from tests.helpers.dlq_letters import attempt, letter
from tests.helpers.hardened_apps import hardened_app

pytestmark = pytest.mark.usefixtures("isolated")


class Store:
    """Takes letters while it is up."""

    def __init__(self) -> None:
        self.up = False
        self.tries = 0
        self.kept: list[object] = []

    def keep(self, record) -> None:
        self.tries += 1
        if not self.up:
            raise LetterNotKept(dump_letter(record).decode())
        self.kept.append(record)


class Held:
    """A request, as far as holding knows one."""

    def __init__(self) -> None:
        self.settled: list[tuple[str, str]] = []

    def settle_held(self, error_class, message) -> None:
        self.settled.append((error_class, message))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def holding(store, clock):
    return Holding(store.keep, clock)


def test_nothing_is_tried_before_the_first_wait_is_over(holding, store, clock) -> None:
    holding.hold(Held(), letter())

    clock.now += FIRST_WAIT_SECONDS - 0.1
    holding.retry_due()

    assert (store.tries, len(holding)) == (0, 1)


def test_a_letter_that_is_kept_at_last_settles_its_request_with_its_last_error(holding, store, clock) -> None:
    request = Held()
    record = letter(attempts=(attempt(1), attempt(2, error_class="KeyError", message="last")))
    holding.hold(request, record)
    store.up = True

    clock.now += FIRST_WAIT_SECONDS
    holding.retry_due()

    assert request.settled == [("KeyError", "last")]
    assert store.kept == [record]
    assert len(holding) == 0


def test_the_waits_double_up_to_the_longest(holding, store, clock) -> None:
    holding.hold(Held(), letter())
    waits = []
    last = clock.now
    for _ in range(3_000):
        tries = store.tries
        holding.retry_due()
        if store.tries > tries:
            waits.append(clock.now - last)
            last = clock.now
        clock.now += 0.25

    assert waits[:6] == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0]
    assert set(waits[5:]) == {LONGEST_WAIT_SECONDS}


def test_one_failure_ends_the_turn_so_that_a_dead_store_costs_one_try(holding, store, clock) -> None:
    requests = [Held() for _ in range(5)]
    for request in requests:
        holding.hold(request, letter())

    clock.now += FIRST_WAIT_SECONDS
    holding.retry_due()

    assert store.tries == 1
    assert len(holding) == 5


def test_when_the_store_is_back_one_turn_settles_all_that_is_due(holding, store, clock) -> None:
    requests = [Held() for _ in range(5)]
    for request in requests:
        holding.hold(request, letter())
    store.up = True

    clock.now += FIRST_WAIT_SECONDS
    holding.retry_due()

    assert [len(request.settled) for request in requests] == [1] * 5
    assert len(holding) == 0


def test_a_message_held_later_waits_for_its_own_time(holding, store, clock) -> None:
    first, second = Held(), Held()
    holding.hold(first, letter())
    clock.now += 1
    holding.hold(second, letter())
    store.up = True

    clock.now += FIRST_WAIT_SECONDS - 1
    holding.retry_due()

    assert (len(first.settled), len(second.settled)) == (1, 0)


def test_an_app_has_one_holding_in_a_process() -> None:
    app, other = hardened_app("one"), hardened_app("other")

    assert holding_for(app) is holding_for(app)
    assert holding_for(app) is not holding_for(other)
