"""`update` changes a document as a function of what it is, whoever else does so."""

from __future__ import annotations

import threading

import pytest

from hardening import store as store_module
from hardening.store import StoreBusy, StoreUnavailable, new_version, update
from hardening.stores.memory import MemoryStore

HOUR = 3600.0


class Rival(MemoryStore):
    """A store in which another changes the document before each of the first `times` swaps."""

    def __init__(self, times: int) -> None:
        super().__init__(clock=lambda: 1000.0)
        self.times = times
        self.swaps = 0

    def swap(self, key, *, version, value, ttl_seconds):
        self.swaps += 1
        if self.times:
            self.times -= 1
            before = self.read(key)
            taken = {"others": (before.value or {"others": 0})["others"] + 1}
            super().swap(key, version=before.version, value=taken, ttl_seconds=HOUR)
        return super().swap(key, version=version, value=value, ttl_seconds=ttl_seconds)


@pytest.fixture
def pauses(monkeypatch) -> list[float]:
    taken: list[float] = []
    monkeypatch.setattr("hardening.store.time.sleep", taken.append)
    return taken


def test_it_hands_over_the_document_and_the_stores_time_and_returns_the_result() -> None:
    store = MemoryStore(clock=lambda: 1000.0)
    seen = []

    def change(value, now):
        seen.append((value, now))
        return {"n": 1}, "result"

    assert update(store, "k", change, ttl_seconds=HOUR) == "result"
    assert update(store, "k", lambda value, now: (None, value), ttl_seconds=HOUR) == {"n": 1}

    assert seen == [(None, 1000.0)]
    assert store.read("k").value is None


def test_when_another_was_faster_it_decides_anew_upon_what_is_there(pauses) -> None:
    store = Rival(times=3)

    def change(value, _now):
        return {**(value or {}), "ours": True}, None

    update(store, "k", change, ttl_seconds=HOUR)

    assert store.read("k").value == {"others": 3, "ours": True}
    assert len(pauses) == 3
    assert all(0 <= pause <= 0.1 for pause in pauses)


def test_after_twenty_vain_tries_it_is_busy_and_nothing_of_ours_is_written(pauses) -> None:
    store = Rival(times=1000)

    with pytest.raises(StoreBusy, match=r"'k'.*20 tries") as caught:
        update(store, "k", lambda value, now: ({"ours": True}, None), ttl_seconds=HOUR)

    assert isinstance(caught.value, StoreUnavailable)
    assert store.read("k").value == {"others": 20}


@pytest.mark.parametrize("value", [None, {"n": {"m": [1]}}])
def test_a_document_that_stays_the_same_is_not_written(value) -> None:
    store = Rival(times=0)
    if value is not None:
        store.swap("k", version=0, value=value, ttl_seconds=HOUR)
    before = store.swaps

    assert update(store, "k", lambda found, now: (found, "seen"), ttl_seconds=HOUR) == "seen"

    assert store.swaps == before


def test_a_change_may_alter_what_it_was_given() -> None:
    store = MemoryStore()
    store.swap("k", version=0, value={"list": [1]}, ttl_seconds=HOUR)

    def change(value, _now):
        value["list"].append(2)
        return value, None

    update(store, "k", change, ttl_seconds=HOUR)

    assert store.read("k").value == {"list": [1, 2]}


def test_an_error_of_the_change_comes_through_and_lets_the_next_one_have_its_turn() -> None:
    store = MemoryStore()

    def broken(_value, _now):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        update(store, "k", broken, ttl_seconds=HOUR)

    other = threading.Thread(target=lambda: update(store, "k", lambda v, n: ({}, None), ttl_seconds=HOUR))
    other.start()
    other.join(1)
    assert store.read("k").value == {}


def test_who_gets_no_turn_in_time_goes_on_without(monkeypatch) -> None:
    monkeypatch.setattr(store_module, "_TURN_PATIENCE_SECONDS", 0.01)
    store = MemoryStore()
    inside, leave = threading.Event(), threading.Event()

    def slow(_value, _now):
        inside.set()
        leave.wait(10)
        return {"slow": True}, None

    holder = threading.Thread(target=lambda: update(store, "k", slow, ttl_seconds=HOUR))
    holder.start()
    inside.wait(10)
    try:
        update(store, "k", lambda value, now: ({"quick": True}, None), ttl_seconds=HOUR)
        assert store.read("k").value == {"quick": True}
    finally:
        leave.set()
        holder.join()


def test_versions_are_positive_and_fit_a_big_integer() -> None:
    versions = {new_version() for _ in range(1000)}

    assert len(versions) == 1000
    assert all(0 < version < 2**63 for version in versions)
