"""A hardened producer's tasks carry `expires` and no time to live, so that no broker drops them unseen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import chain, group, signals

from hardening import plugin
from hardening.intake.expiration import keep_expired, without_ttl
from tests.helpers.hardened_apps import (
    SINK,
    fetch,
    hardened_app,
    no_hardening,
    plain_app,
    request_of,
    run,
    send,
)

pytestmark = pytest.mark.usefixtures("isolated")


@pytest.fixture
def keeping() -> Iterator[None]:
    """This process is a producer on RabbitMQ."""
    keep_expired()
    yield
    signals.before_task_publish.disconnect(dispatch_uid="hardening.expiration")


@pytest.fixture
def app(settings: Any, keeping: None) -> Any:
    settings.HARDENING = SINK
    found = hardened_app()

    @found.task(shared=False, name="first")
    def first():
        return None

    @found.task(shared=False, name="again", bind=True)
    def again(self):
        if not self.request.retries:
            raise self.retry(countdown=0, max_retries=3)

    return found


def is_safe(message: Any) -> bool:
    return bool(message.headers["expires"]) and "expiration" not in message.properties


def test_whatever_is_sent_keeps_its_expires_and_loses_its_ttl(app: Any) -> None:
    first, again = app.tasks["first"], app.tasks["again"]
    assert is_safe(send(first, expires=60))
    app.send_task("first", expires=60)
    assert is_safe(fetch(app))
    group([first.s().set(expires=60)], app=app).apply_async()
    assert is_safe(fetch(app))

    chain(first.s(), again.si().set(expires=60), app=app).apply_async()
    run(request_of(app, fetch(app)))
    tail = fetch(app)
    assert is_safe(tail)
    run(request_of(app, tail))
    retried = fetch(app)
    assert retried.headers["retries"] == 1
    assert is_safe(retried)


def test_a_ttl_of_the_projects_own_stays(app: Any) -> None:
    assert send(app.tasks["first"], expiration=60).properties["expiration"] == "60000"


def test_a_plain_producer_sends_it_as_ever() -> None:
    signals.before_task_publish.disconnect(dispatch_uid="hardening.expiration")
    with no_hardening():
        plain = plain_app()

        @plain.task(shared=False, name="first")
        def first():
            return None

        assert send(first, expires=60).properties["expiration"] == "60000"


@pytest.mark.parametrize(
    ("broker", "mode"), [("amqp://x", "enforce"), ("redis://x", "enforce"), ("amqp://x", "report")]
)
def test_only_an_app_that_is_enforced_on_rabbitmq_asks_for_it(
    settings: Any, monkeypatch: pytest.MonkeyPatch, broker: str, mode: str
) -> None:
    settings.HARDENING = {"MODE": mode}
    asked: list[str] = []
    monkeypatch.setattr(plugin, "keep_expired", lambda: asked.append(broker))
    app = hardened_app()
    app.conf.broker_url = broker

    plugin._configure(app)

    assert bool(asked) is (broker.startswith("amqp") and mode == "enforce")


@pytest.mark.parametrize(
    "message", [{}, {"headers": {}, "properties": None}, {"headers": None, "properties": {}}]
)
def test_what_celery_may_send_otherwise_is_left_alone(message: dict[str, Any]) -> None:
    without_ttl(**message)
