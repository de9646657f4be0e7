"""One of several may start; a dead holder's mark is taken over; a store that is down admits and is let be."""

from __future__ import annotations

import pytest

from hardening.store import Entry
from hardening.twins.records import DONE_KEY, HOLDER_KEY, RUNNING_KEY, Records
from hardening.twins.work import Work
from tests.helpers.twin_fixtures import clock, store
from tests.helpers.twin_messages import LEASE_SECONDS, Clock, Switchable

__all__ = ["clock", "store"]  # Fixtures.

WORK = Work("digest", "an id", 0)


def worker(store: Switchable, clock: Clock, name: str = "w1") -> Records:
    records = Records(None, lease_seconds=LEASE_SECONDS, store=store, clock=clock)  # type: ignore[arg-type]
    records.worker = name
    return records


def test_one_of_two_workers_has_the_mark(store: Switchable, clock: Clock) -> None:
    first, second = worker(store, clock, "w1"), worker(store, clock, "w2")

    assert first.take_mark(WORK) == (True, None)
    assert second.take_mark(WORK) == (False, "w1")
    assert first.take_mark(WORK) == (True, None), "it is its own"


def test_a_mark_lasts_as_long_as_its_holder_says_that_it_lives(store: Switchable, clock: Clock) -> None:
    first, second = worker(store, clock), worker(store, clock)
    first.take_mark(WORK)
    for _ in range(10):
        clock.now += LEASE_SECONDS / 3
        first.stay_alive()
    assert second.take_mark(WORK) == (False, "w1")

    clock.now += LEASE_SECONDS + 0.1

    assert second.take_mark(WORK) == (True, None)
    assert first.take_mark(WORK) == (False, "w1"), "it was taken over"


def test_only_one_takes_over_from_the_dead(store: Switchable, clock: Clock) -> None:
    worker(store, clock, "dead").take_mark(WORK)
    clock.now += LEASE_SECONDS + 0.1
    second, third = worker(store, clock, "w2"), worker(store, clock, "w3")
    read = store.read
    raced: list[object] = []

    def read_and_be_overtaken(key: str) -> Entry:
        entry = read(key)
        if key == f"{RUNNING_KEY}{WORK.digest}" and not raced:
            raced.append(key)
            raced.append(third.take_mark(WORK))
        return entry

    store.read = read_and_be_overtaken  # type: ignore[method-assign]

    assert second.take_mark(WORK)[0] is False
    assert raced[1] == (True, None)


def test_a_holder_says_that_it_lives_before_it_has_a_mark(store: Switchable, clock: Clock) -> None:
    first = worker(store, clock)
    order: list[str] = []
    swap = store.swap

    def noted(key: str, **options: object) -> bool:
        order.append(key)
        return swap(key, **options)  # type: ignore[arg-type]

    store.swap = noted  # type: ignore[method-assign]
    first.take_mark(WORK)

    assert order == [f"{HOLDER_KEY}{first.holder}", f"{RUNNING_KEY}{WORK.digest}"]


def test_a_mark_that_is_given_up_is_free_and_another_ones_is_left(store: Switchable, clock: Clock) -> None:
    first, second = worker(store, clock), worker(store, clock)
    first.take_mark(WORK)

    second.give_up_mark(WORK)
    assert second.take_mark(WORK)[0] is False
    first.give_up_mark(WORK)
    assert second.take_mark(WORK)[0] is True


def test_the_first_success_is_the_one_that_is_recorded(store: Switchable, clock: Clock) -> None:
    first, second = worker(store, clock, "w1"), worker(store, clock, "w2")

    assert first.success_of(WORK) is None
    assert first.record_success(WORK) is None
    assert second.record_success(WORK) == {"at": clock.now, "worker": "w1"}
    assert second.success_of(WORK) == {"at": clock.now, "worker": "w1"}


def test_a_store_that_is_down_admits_is_let_be_for_a_while_and_named_once_a_minute(
    store: Switchable, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    first = worker(store, clock)
    store.down = True

    for _ in range(50):
        assert first.take_mark(WORK) == (False, None)
        assert first.success_of(WORK) is None
        assert first.record_success(WORK) is None
        first.give_up_mark(WORK)
        first.stay_alive()
        clock.now += 1.0

    assert store.asked <= 4, "after 5, 10 and 20 seconds"
    assert caplog.text.count("all of them are started") == 1

    store.down = False
    clock.now += 60.0
    assert first.take_mark(WORK) == (True, None)


def test_what_others_put_in_the_place_of_a_document_does_no_harm(store: Switchable, clock: Clock) -> None:
    store.swap(f"{RUNNING_KEY}{WORK.digest}", version=0, value={"holder": ["?"]}, ttl_seconds=9)
    store.swap(f"{DONE_KEY}{WORK.digest}", version=0, value={}, ttl_seconds=9)
    first = worker(store, clock)

    assert first.take_mark(WORK) == (True, None)
    assert first.success_of(WORK) == {}
