"""The boot step puts holding and the apps' duties on the consumer's timer, and no failure stops a turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from celery.utils.timer2 import Schedule

from hardening.core.duties import Duty, duties, offer_duty
from hardening.holding import holding_for
from hardening.worker import HELD_EVERY_SECONDS, Upkeep
from tests.helpers.dlq_letters import letter
from tests.helpers.hardened_apps import LETTERS, hardened_app

pytestmark = pytest.mark.usefixtures("isolated", "recording")


@pytest.fixture
def offered(monkeypatch):
    monkeypatch.setattr("hardening.core.duties._duties", {})


class Timer:
    """kombu's schedule, remembering its entries; nothing ticks by itself."""

    def __init__(self) -> None:
        self.schedule = Schedule()
        self.entries: list[tuple[float, Any, Any]] = []

    def call_repeatedly(self, seconds, function):
        entry = self.schedule.call_repeatedly(seconds, function)
        self.entries.append((seconds, entry, function))
        return entry

    def turn(self) -> None:
        for _, entry, function in self.entries:
            if not entry.canceled:
                function()


def consumer_of(app):
    return SimpleNamespace(app=app, timer=Timer(), pool=None)


def test_holding_and_every_offered_duty_are_put_on_the_timer(offered) -> None:
    ran: list[object] = []
    offer_duty(Duty(name="sweep", every_seconds=7, run=ran.append))
    app = hardened_app()
    consumer = consumer_of(app)

    Upkeep(consumer).start(consumer)
    consumer.timer.turn()

    periods = [seconds for seconds, *_ in consumer.timer.entries]
    assert periods.count(HELD_EVERY_SECONDS) == 5
    assert periods[-1] == 7
    assert ran == [app]


def test_a_duty_that_fails_is_logged_and_the_others_run(offered, caplog) -> None:
    ran: list[object] = []
    offer_duty(Duty(name="broken", every_seconds=1, run=lambda app: 1 / 0))  # type: ignore[arg-type]
    offer_duty(Duty(name="fine", every_seconds=1, run=ran.append))
    consumer = consumer_of(hardened_app())

    Upkeep(consumer).start(consumer)
    consumer.timer.turn()
    consumer.timer.turn()

    assert len(ran) == 2
    assert "the worker's duty 'broken' failed" in caplog.text


def test_stopping_takes_everything_off_and_a_new_connection_puts_it_back(offered) -> None:
    ran: list[object] = []
    offer_duty(Duty(name="sweep", every_seconds=1, run=ran.append))
    consumer = consumer_of(hardened_app())
    step = Upkeep(consumer)

    step.start(consumer)
    step.stop(consumer)
    consumer.timer.turn()
    assert ran == []

    step.start(consumer)
    consumer.timer.turn()
    assert len(ran) == 1


def test_a_held_message_is_settled_by_the_boot_step(offered, monkeypatch) -> None:
    app = hardened_app()
    settled: list[str] = []
    record = letter()
    holding = holding_for(app)
    monkeypatch.setattr(holding, "_clock", iter((0.0, 1e9, 1e9)).__next__)
    holding.hold(SimpleNamespace(settle_held=lambda error, text: settled.append(error)), record)
    consumer = consumer_of(app)

    Upkeep(consumer).start(consumer)
    consumer.timer.turn()

    assert [record] == LETTERS
    assert len(settled) == 1


def test_the_same_name_replaces_a_duty(offered) -> None:
    offer_duty(Duty(name="a", every_seconds=1, run=print))
    offer_duty(Duty(name="a", every_seconds=2, run=print))

    assert [duty.every_seconds for duty in duties()] == [2]
