"""Over every store: a fleet looks once, opens once, and tells each channel once; nobody's death loses it."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
from celery import Celery

from hardening.alerts import delivery
from hardening.alerts.engine import Alerts, _key
from hardening.alerts.notice import News
from hardening.alerts.rules import AlertRules, ChannelRule
from hardening.core.alerts import Fact
from hardening.store import StateStore, StoreUnavailable
from tests.helpers.alerting import HangingChannel, Probe, RecordingChannel
from tests.helpers.state_stores import state_store
from tests.helpers.wait import wait_until

HERE = "tests.helpers.alerting"
RECORDING = ChannelRule(name="recording", backend=f"{HERE}.RecordingChannel")
HANGING = ChannelRule(name="hanging", backend=f"{HERE}.HangingChannel")
KINDS = ("memory", "redis", "sqlite", "postgres", "mariadb")


@pytest.fixture(params=KINDS)
def store(request, tmp_path, django_db_blocker) -> Iterator[StateStore]:
    with django_db_blocker.unblock(), state_store(request.param, request, tmp_path) as made:
        yield made


on_memory = pytest.mark.parametrize("store", ["memory"], indirect=True)


@pytest.fixture
def probe(monkeypatch) -> Iterator[Probe]:
    probe = Probe()
    monkeypatch.setattr("hardening.alerts.engine.conditions_of", lambda app: (probe.condition,))
    monkeypatch.setattr(RecordingChannel, "told", [])
    monkeypatch.setattr(RecordingChannel, "down", False)
    HangingChannel.released.clear()
    yield probe
    HangingChannel.released.set()


@pytest.fixture
def worker(store, probe) -> Iterator[Any]:
    made: list[Alerts] = []

    def make(*channels: ChannelRule, at: StateStore = store) -> Alerts:
        app = Celery("shop", broker="memory://", set_as_current=False)
        made.append(Alerts(app, rules=AlertRules(channels=channels or (RECORDING,)), store=at))
        return made[-1]

    yield make
    for each in made:
        each.close()


def told() -> list[tuple[str, News]]:
    return [(each.subject, each.news) for each in RecordingChannel.told]


def settled(alerts: Alerts) -> bool:
    alerts.turn()
    return not alerts.busy


def test_a_fleet_opens_and_resolves_an_incident_once(store, probe, worker) -> None:
    fleet = [worker() for _ in range(4)]
    probe.facts = [Fact("shelf", "it is empty", "token=abcdef")]
    stop: list[bool] = []

    def run(alerts: Alerts) -> None:
        while not stop:
            alerts.turn()

    threads = [Thread(target=run, args=(alerts,)) for alerts in fleet]
    for each in threads:
        each.start()
    try:
        wait_until(lambda: told() and probe.looks > 3)
        probe.facts = []
        wait_until(lambda: store.read(_key(probe.condition)).value["incidents"] == {})
    finally:
        stop.append(True)
        for each in threads:
            each.join()

    assert told() == [("shelf", News.OPENED), ("shelf", News.RESOLVED)]
    opened, resolved = RecordingChannel.told
    assert opened.incident == resolved.incident
    assert opened.id != resolved.id
    assert "abcdef" not in repr(opened)


def test_a_channel_that_is_down_is_told_when_it_is_back_and_by_another_process(
    probe, worker, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(delivery, "_FIRST_WAIT", 0.05)
    probe.facts = [Fact("shelf", "it is empty")]
    RecordingChannel.down = True
    rule = ChannelRule(
        name="recording", backend=f"{HERE}.RecordingChannel", options={"secret": "s3cr3t-of-the-channel"}
    )
    first = worker(rule)
    first.turn()
    wait_until(lambda: settled(first))
    assert "could not be told on the channel 'recording'" in caplog.text
    assert "s3cr3t" not in caplog.text

    RecordingChannel.down = False
    second = worker(rule)

    wait_until(lambda: second.turn() and told())
    assert wait_until(lambda: settled(second))
    assert told() == [("shelf", News.OPENED)]


def test_who_dies_between_delivery_and_its_mark_leaves_a_notice_that_is_told_again(
    probe, worker, monkeypatch
) -> None:
    probe.facts = [Fact("shelf", "it is empty")]
    with monkeypatch.context() as short:  # The survivor has all the time that it needs.
        short.setattr(delivery, "CLAIM_SECONDS", 0.2)
        worker().turn()  # It never has another turn.
    wait_until(lambda: len(told()) == 1)

    survivor = worker()

    wait_until(lambda: survivor.turn() and len(told()) == 2)
    assert len({each.id for each in RecordingChannel.told}) == 1
    wait_until(lambda: settled(survivor))
    assert len(told()) == 2


@on_memory
def test_a_channel_that_hangs_keeps_neither_the_turn_nor_the_other_channel(probe, worker) -> None:
    alerts = worker(HANGING, RECORDING)
    probe.facts = [Fact(f"shelf {number}", "it is empty") for number in range(15)]

    wait_until(lambda: alerts.turn() and len(told()) == 15)

    assert alerts.busy


@on_memory
def test_a_condition_that_raises_is_said_and_resolves_nothing_and_the_others_go_on(
    probe, worker, monkeypatch, caplog
) -> None:
    other = Probe(name="shop.other", facts=[Fact("till", "it is full")])
    monkeypatch.setattr(
        "hardening.alerts.engine.conditions_of", lambda app: (probe.condition, other.condition)
    )
    alerts = worker()
    probe.facts = [Fact("shelf", "it is empty")]
    wait_until(lambda: alerts.turn() and len(told()) == 2)

    probe.error = ConnectionError("password=hunter22 was refused")
    before = other.looks
    wait_until(lambda: alerts.turn() and other.looks > before + 3)

    assert "the condition 'shop.probe' could not be looked at" in caplog.text
    assert "hunter22" not in caplog.text
    assert len(told()) == 2
    assert len([r for r in caplog.records if "could not be looked at" in r.getMessage()]) == 1


class Unreliable:
    """A store that may be down."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self.down = True

    def __getattr__(self, name: str) -> Any:
        if self.down:
            raise StoreUnavailable("down")
        return getattr(self._store, name)


@on_memory
def test_a_store_that_is_down_loses_nothing_that_still_holds_and_no_mark(
    store, probe, worker, monkeypatch
) -> None:
    monkeypatch.setattr("hardening.stores.patient._LEFT_ALONE_SECONDS", 0.05)
    unreliable = Unreliable(store)
    alerts = worker(at=unreliable)
    probe.facts = [Fact("shelf", "it is empty")]
    assert alerts.turn().unanswered
    assert probe.looks == 0

    unreliable.down = False
    wait_until(lambda: alerts.turn() and told())
    unreliable.down = True
    alerts.turn()
    unreliable.down = False

    wait_until(lambda: settled(alerts))
    assert told() == [("shelf", News.OPENED)]
    assert store.read(_key(probe.condition)).value["incidents"]["shelf"]["notices"] == []
