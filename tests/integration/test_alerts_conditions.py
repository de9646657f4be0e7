"""The conditions of hardening itself, on real brokers."""

from __future__ import annotations

import pytest
from celery import Celery

from hardening.alerts.conditions import conditions_of
from hardening.conf import load_settings
from hardening.core.alerts import Condition, Severity, offer_condition
from hardening.core.parking import parking_queue, publish_letter, refused_queue
from hardening.store import chosen_store
from tests.helpers.dlq_letters import letter
from tests.helpers.traffic import fail


@pytest.fixture(params=["redis", "rabbitmq"])
def app(request) -> Celery:
    url = request.getfixturevalue(f"{request.param}_url")
    return Celery("shop", broker=url, set_as_current=False)


def facts(app: Celery, name: str) -> dict[str, str]:
    (condition,) = (each for each in conditions_of(app) if each.name == name)
    return {fact.subject: fact.summary for fact in condition.look()}


def test_letters_on_the_broker_are_a_fact_of_their_queue(app) -> None:
    assert facts(app, "hardening.letters_on_broker") == {}

    publish_letter(app, letter(), queue=parking_queue())
    publish_letter(app, letter(), queue=parking_queue())
    publish_letter(app, letter(), queue=refused_queue())

    found = facts(app, "hardening.letters_on_broker")
    assert found[parking_queue()].startswith("2 dead letter(s)")
    assert found[refused_queue()].startswith("1 dead letter(s)")


def test_a_broker_that_does_not_answer_is_unknown() -> None:
    app = Celery("shop", broker="redis://127.0.0.1:1/0", set_as_current=False)

    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        facts(app, "hardening.letters_on_broker")


def test_an_outage_is_a_fact_of_its_dependency(settings) -> None:
    settings.HARDENING = {"STORE": {"BACKEND": "hardening.stores.memory.MemoryStore"}}
    app = Celery("shop", broker="memory://", set_as_current=False)
    store = chosen_store(app, load_settings()[0])
    fail(store, "few", 3)
    fail(store, "courier", 20)

    assert facts(app, "hardening.outage") == {"courier": "courier is down"}


def test_an_app_offers_conditions_and_replaces_ours_by_name(monkeypatch) -> None:
    monkeypatch.setattr("hardening.core.alerts._conditions", {})
    app = Celery("shop", broker="memory://", set_as_current=False)
    mine = Condition(name="hardening.outage", severity=Severity.INFO, every_seconds=1, look=list)
    offer_condition(mine)
    offer_condition(Condition(name="shop.stock", severity=Severity.INFO, every_seconds=1, look=list))

    found = {each.name: each for each in conditions_of(app)}

    assert found.keys() == {"hardening.outage", "hardening.letters_on_broker", "shop.stock"}
    assert found["hardening.outage"] is mine
