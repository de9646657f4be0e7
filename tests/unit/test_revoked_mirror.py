"""A worker's copy follows the store: new ones come in, forgotten and expired ones leave, and no more."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from celery.worker import state

from hardening.revoked import mirror as module
from hardening.revoked.mirror import CHECK_EVERY_SECONDS, OVERLAP_SECONDS, Mirror
from hardening.revoked.rules import Revoke
from hardening.revoked.stores.memory import MemoryRevoked
from hardening.store import StoreUnavailable
from tests.helpers.hardened_apps import hardened_app

pytestmark = pytest.mark.usefixtures("isolated", "recording")

HOUR = 3600.0
MOST = 50


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Store(MemoryRevoked):
    """Counts what it is asked, and can be down."""

    down = False

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.asked: list[float | None] = []
        self.written: list[list[Revoke]] = []

    def add(self, revokes: Any, **options: Any) -> int:
        if self.down:
            raise StoreUnavailable("no answer")
        self.written.append(list(revokes))
        return super().add(revokes, **options)

    def changes(self, since: float | None = None) -> Any:
        if self.down:
            raise StoreUnavailable("no answer")
        self.asked.append(since)
        return super().changes(since)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(monkeypatch, clock) -> Store:
    made = Store(clock)
    monkeypatch.setattr("hardening.revoked.mirror.chosen_revoked", lambda app: made)
    monkeypatch.setattr("hardening.revoked.control.chosen_revoked", lambda app: made)
    return made


@pytest.fixture
def mirror(store, clock) -> Iterator[Mirror]:
    ids: Any = state.revoked
    before = ids.maxlen, ids.expires
    yield Mirror(hardened_app(), clock=clock)
    ids.maxlen, ids.expires = before
    ids.clear()
    state.revoked_stamps.clear()


def stamps() -> Any:
    return state.revoked_stamps


def add(store: Store, *revokes: Revoke, ttl: float = HOUR) -> None:
    store.add(revokes, ttl_seconds=ttl, most=MOST)


def test_the_first_look_takes_everything_and_the_next_only_what_is_new(mirror, store, clock) -> None:
    add(store, Revoke("a"), Revoke("x", "h"))

    mirror.look()
    assert "a" in state.revoked
    assert stamps() == {"h": ["x"]}

    clock.now += 100
    add(store, Revoke("b"), Revoke(7, "h"))
    mirror.look()
    assert {"a", "b"} <= set(state.revoked)
    assert stamps() == {"h": ["x", 7]}
    assert store.asked == [None, 1_000_000.0 - OVERLAP_SECONDS]


def test_what_a_database_shows_a_little_late_is_still_found(mirror, store, clock) -> None:
    clock.now += 5
    mirror.look()
    store._rows[Revoke("late")] = (clock.now - OVERLAP_SECONDS + 1, clock.now + HOUR, False)

    mirror.look()

    assert "late" in state.revoked


def test_what_is_forgotten_leaves_the_copy_and_can_come_again(mirror, store) -> None:
    add(store, Revoke("a"), Revoke("x", "h"), Revoke("y", "h"))
    mirror.look()

    store.forget([Revoke("a"), Revoke("x", "h")], ttl_seconds=HOUR)
    mirror.look()
    assert "a" not in state.revoked
    assert stamps() == {"h": ["y"]}

    add(store, Revoke("a"))
    mirror.look()
    assert "a" in state.revoked


def test_what_was_heard_and_is_forgotten_leaves_as_well(mirror, store) -> None:
    state.revoked.add("heard elsewhere")

    store.forget([Revoke("heard elsewhere")], ttl_seconds=HOUR)
    mirror.look()

    assert "heard elsewhere" not in state.revoked


def test_what_has_expired_leaves_by_the_clock_of_the_store(mirror, store, clock) -> None:
    state.revoked.add("Celery's own")
    add(store, Revoke("short"), ttl=60)
    add(store, Revoke("long"), Revoke("renewed"))
    mirror.look()

    clock.now += 59
    mirror.look()
    assert "short" in state.revoked

    clock.now += CHECK_EVERY_SECONDS
    mirror.look()
    assert set(state.revoked) == {"long", "renewed", "Celery's own"}


def test_what_celery_lets_go_of_too_early_is_put_back(mirror, store, clock) -> None:
    add(store, Revoke("a"))
    mirror.look()
    state.revoked.clear()

    clock.now += CHECK_EVERY_SECONDS
    mirror.look()

    assert "a" in state.revoked


def test_celerys_set_has_room_for_what_the_store_has_and_keeps_it_as_long(mirror) -> None:
    ids: Any = state.revoked

    assert ids.expires >= 7 * 86400
    assert ids.maxlen >= state.REVOKES_MAX + 50_000


def test_a_store_whose_clock_went_back_is_asked_for_everything(mirror, store, clock) -> None:
    clock.now += 10_000
    mirror.look()
    clock.now -= 10_000
    add(store, Revoke("a"))

    mirror.look()

    assert "a" in state.revoked
    assert store.asked[-1] is None


def test_what_is_heard_is_written_at_once(mirror, store) -> None:
    mirror.heard([Revoke("a"), Revoke("x", "h")])

    assert store.written == [[Revoke("a"), Revoke("x", "h")]]


def test_nothing_is_asked_or_written_for_a_broadcast_that_revokes_nothing(mirror, store) -> None:
    mirror.heard([])

    assert store.written == []


def test_what_cannot_be_written_is_said_once_and_written_later(mirror, store, clock, caplog) -> None:
    store.down = True
    mirror.heard([Revoke("a")])
    mirror.heard([Revoke("b")])
    assert [r.levelno for r in caplog.records] == [logging.ERROR]
    assert "cannot be read or kept now" in caplog.text

    store.down = False
    clock.now += 5
    mirror.look()
    mirror.look()

    assert store.written == [[Revoke("a"), Revoke("b")]]
    assert "can be read and kept again" in caplog.text


def test_a_store_that_is_down_is_asked_less_and_less_often(mirror, store, clock, monkeypatch) -> None:
    store.down = True
    tries: list[float] = []

    def changes(since: float | None = None) -> Any:
        tries.append(clock.now)
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(store, "changes", changes)

    for _ in range(300):
        mirror.look()
        clock.now += 1

    gaps = [round(later - earlier) for earlier, later in pairwise(tries)]
    assert gaps[:5] == [5, 10, 20, 40, 60]
    assert set(gaps[5:]) <= {60}


def test_a_new_connection_asks_at_once(mirror, store) -> None:
    store.down = True
    mirror.look()
    store.down = False
    add(store, Revoke("a"))

    mirror.look()
    assert "a" not in state.revoked
    mirror.look(at_once=True)
    assert "a" in state.revoked


def test_a_store_that_stays_down_does_not_fill_the_memory(mirror, store, settings) -> None:
    settings.HARDENING = {**settings.HARDENING, "REVOKED": {"MOST": 3}}
    store.down = True

    for number in range(10):
        mirror.heard([Revoke(str(number))])
        mirror._asked_again_at = 0.0

    assert list(mirror._unwritten) == [Revoke("7"), Revoke("8"), Revoke("9")]


def test_at_the_bound_it_is_said(mirror, store, settings, caplog) -> None:
    settings.HARDENING = {**settings.HARDENING, "REVOKED": {"MOST": 2}}

    mirror.heard([Revoke("a"), Revoke("b"), Revoke("c")])

    assert "more than 2 revokes: the 1 that would have expired first are forgotten" in caplog.text


def test_one_mirror_outlives_the_connections_of_its_app(mirror) -> None:
    app = hardened_app()

    assert module.mirror_of(app) is module.mirror_of(app)
