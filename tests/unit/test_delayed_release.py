"""When a worker looks for what is due, and what it says when it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hardening.audit import audit
from hardening.delayed.release import Releasing, release_on, releasing_for
from hardening.delayed.rules import DelayedRules, delayed_of
from hardening.delayed.saying import Seldom
from hardening.delayed.store import Turn, chosen_delayed_store
from hardening.delayed.stores.database import DatabaseDelayedStore
from hardening.delayed.stores.memory import MemoryDelayedStore
from hardening.delayed.stores.redis import RedisDelayedStore
from hardening.store import StoreUnavailable
from tests.helpers.hardened_apps import hardened_app


class Script:
    """A store whose turns are written down."""

    def __init__(self, *turns: Any) -> None:
        self.turns = list(turns)
        self.asked = 0

    def pause(self) -> None: ...

    def release(self, publish: Any, *, limit: int) -> Turn:
        self.asked += 1
        turn = self.turns.pop(0) if self.turns else Turn()
        if isinstance(turn, Exception):
            raise turn
        return turn() if callable(turn) else turn


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def releasing(*turns: Any, horizon: float = 12.0) -> tuple[Releasing, Script, Clock]:
    store: Any = Script(*turns)
    clock = Clock()
    return Releasing(store, lambda entries: [], DelayedRules(horizon=horizon), clock=clock), store, clock


@pytest.mark.parametrize(
    ("horizon", "next_in", "rests"),
    [
        (12.0, None, 3.0),
        (12.0, 100.0, 3.0),
        (12.0, 1.2, 1.2),
        (4.0, None, 1.0),
        (1.0, None, 0.5),
        (900.0, None, 3.0),
    ],
)
def test_the_next_look_waits_for_what_is_due_next_and_never_long(horizon, next_in, rests) -> None:
    worker, store, clock = releasing(Turn(next_in=next_in), horizon=horizon)

    worker.turn()
    clock.now = rests - 0.01
    worker.turn()
    assert store.asked == 1
    clock.now = rests
    worker.turn()
    assert store.asked == 2


def test_batches_follow_each_other_until_nothing_is_due() -> None:
    worker, store, _ = releasing(Turn(released=200, next_in=0.0), Turn(released=7, next_in=4.0))

    assert not worker.turn()

    assert store.asked == 2


def test_a_turn_ends_in_time_and_asks_for_another() -> None:
    worker, store, clock = releasing()

    def slow() -> Turn:
        clock.now += 0.2
        return Turn(released=200, next_in=0.0)

    store.turns = [slow, slow, slow]

    assert worker.turn()
    assert store.asked == 2
    assert not worker.turn()


def test_what_the_broker_refuses_ends_the_turn() -> None:
    worker, store, _ = releasing(Turn(postponed=200, next_in=0.0))

    assert not worker.turn()

    assert store.asked == 1


def test_no_turn_begins_within_another() -> None:
    worker, store, _ = releasing()
    inner: list[bool] = []

    def again() -> Turn:
        inner.append(worker.turn())
        return Turn()

    store.turns = [again]
    worker.turn()

    assert (inner, store.asked) == ([False], 1)


def test_a_store_that_is_down_is_said_once_and_asked_again(caplog) -> None:
    worker, store, clock = releasing(StoreUnavailable("no store"), ConnectionError("no broker"))

    worker.turn()
    worker.turn()
    assert store.asked == 1
    clock.now += 5
    worker.turn()
    clock.now += 5
    worker.turn()

    assert store.asked == 3
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "delayed tasks are not released now; it is tried again: no store"
    ]


def test_a_warning_comes_again_after_a_minute(caplog, monkeypatch) -> None:
    import logging

    now = 1000.0
    monkeypatch.setattr("hardening.delayed.saying.time.monotonic", lambda: now)
    seldom = Seldom(logging.getLogger("hardening"))
    for moment in (1000.0, 1059.0, 1060.0):
        now = moment
        seldom.warn("%s", moment)

    assert [record.message for record in caplog.records] == ["1000.0", "1060.0"]


def test_more_work_is_put_on_the_timer_at_once(monkeypatch) -> None:
    app = hardened_app("timed", broker_url="redis://")
    worker, store, clock = releasing()
    calls: list[Callable[[], None]] = []

    class Timer:
        def call_after(self, seconds: float, function: Callable[[], None]) -> None:
            calls.append(function)

    def slow() -> Turn:
        clock.now += 1
        return Turn(released=200, next_in=0.0)

    store.turns = [slow]
    monkeypatch.setattr("hardening.delayed.release.releasing_for", lambda each: worker)
    release_on(Timer(), app)()
    assert len(calls) == 1
    calls[0]()

    assert (store.asked, len(calls)) == (2, 1)


def test_the_store_is_the_brokers_redis_else_the_database_else_that_of_the_settings() -> None:
    on_redis, on_amqp = hardened_app("r", broker_url="redis://"), hardened_app("a", broker_url="amqp://")
    named = DelayedRules(store={"BACKEND": "hardening.delayed.stores.memory.MemoryDelayedStore"})

    assert isinstance(chosen_delayed_store(on_redis, DelayedRules()), RedisDelayedStore)
    assert isinstance(chosen_delayed_store(on_amqp, DelayedRules()), DatabaseDelayedStore)
    assert isinstance(chosen_delayed_store(on_amqp, named), MemoryDelayedStore)
    assert chosen_delayed_store(on_amqp, named) is chosen_delayed_store(on_amqp, named)
    assert releasing_for(hardened_app("m")) is None
    assert releasing_for(on_redis) is releasing_for(on_redis) is not None


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ({"HORIZON": "soon"}, "HORIZON"),
        ({"HORIZON": 0}, "HORIZON"),
        ({"STORE": "redis"}, "STORE"),
        ({"STORE": {"BACKEND": 3}}, "STORE"),
        ({"HORIZONT": "3 s"}, "HORIZONT"),
    ],
)
def test_what_cannot_be_used_of_the_settings_is_a_finding_and_the_default_counts(raw, key) -> None:
    rules, findings = delayed_of(raw)

    assert rules == DelayedRules()
    assert [finding.where for finding in findings] == [f'settings.HARDENING["DELAYED"]["{key}"]']
    assert findings[0].code == "CH001"


def test_the_settings_are_read() -> None:
    store = {"BACKEND": "a.b.C"}

    assert delayed_of({"HORIZON": "1 m", "STORE": store}) == (DelayedRules(horizon=60.0, store=store), [])


def test_a_store_that_cannot_be_loaded_is_a_finding(settings) -> None:
    settings.HARDENING = {"DELAYED": {"STORE": {"BACKEND": "no.such.Store"}}}

    found = [each for each in audit(hardened_app("misnamed")) if each.code == "CH015"]

    assert [each.where for each in found] == ['settings.HARDENING["DELAYED"]["STORE"]']
