"""Conditions of dead letters, through the real engine of alerts and on real brokers."""

from __future__ import annotations

import pytest
from celery import Celery
from django.utils import timezone

from dlq.conditions import conditions
from dlq.groups.duty import tend
from dlq.sink import DatabaseSink
from hardening.alerts.engine import Alerts
from hardening.alerts.notice import News
from hardening.alerts.rules import AlertRules, ChannelRule
from hardening.core.parking import parking_queue, publish_letter
from hardening.stores.memory import MemoryStore
from tests.helpers.alerting import RecordingChannel
from tests.helpers.dlq_letters import letter
from tests.helpers.wait import wait_until


@pytest.mark.parametrize("kind", ["redis", "rabbitmq"])
def test_letters_that_nobody_takes_in_are_a_fact(request, monkeypatch, kind) -> None:
    app = Celery("shop", broker=request.getfixturevalue(f"{kind}_url"), set_as_current=False)
    monkeypatch.setattr("dlq.conditions.celery_app", lambda: app)
    (stuck,) = (each for each in conditions() if each.name == "dlq.ingest_stuck")
    assert list(stuck.look()) == []

    publish_letter(app, letter(), queue=parking_queue())

    (fact,) = stuck.look()
    assert (fact.subject, fact.detail.startswith("1 letter(s)")) == (parking_queue(), True)
    assert stuck.hold_seconds == 600.0


@pytest.mark.django_db(transaction=True)
def test_a_new_group_is_told_once_with_a_way_to_its_page(monkeypatch) -> None:
    DatabaseSink().keep(letter(failed_at=timezone.now()))
    tend(by_hand=True)
    found = tuple(each for each in conditions() if each.name != "dlq.ingest_stuck")
    monkeypatch.setattr("hardening.alerts.engine.conditions_of", lambda app: found)
    monkeypatch.setattr(RecordingChannel, "told", [])
    rules = AlertRules(
        channels=(ChannelRule(name="recording", backend="tests.helpers.alerting.RecordingChannel"),)
    )
    alerts = Alerts(
        Celery("shop", broker="memory://", set_as_current=False), rules=rules, store=MemoryStore()
    )

    def settled() -> bool:
        assert alerts.turn().unknown == {}
        return bool(RecordingChannel.told) and not alerts.busy

    try:
        wait_until(settled)
        alerts.turn()
    finally:
        alerts.close()

    (notice,) = RecordingChannel.told
    assert (notice.condition, notice.news) == ("dlq.new_group", News.OPENED)
    assert "/admin/dlq/lettergroup/" in notice.link
