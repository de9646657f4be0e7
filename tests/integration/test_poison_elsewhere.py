"""A last try goes to a queue that is there: a mistyped name is no place to lose a message in."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery
from kombu import Queue
from kombu.message import Message

from hardening.poison.elsewhere import move, nowhere_findings, say_nowhere
from hardening.poison.terms import Poison
from hardening.testing.servers import RedisServer
from tests.helpers.hardened_apps import no_hardening

TERMS = Poison(last_try_queue="roomy")
MISTYPED = Poison(last_try_queue="romy")


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Any]:
    with redis.Redis.from_url(redis_server.url_for(3)) as client:
        client.flushdb()
        yield client


@pytest.fixture
def app(isolated: None, redis_server: RedisServer, client: Any) -> Iterator[Any]:
    with no_hardening():
        made = Celery("elsewhere", broker=redis_server.url_for(3), set_as_current=False)
        yield made
    made.close()


def message() -> Message:
    return Message(
        body="[[], {}, {}]",
        content_type="application/json",
        content_encoding="utf-8",
        headers={"task": "a task", "id": "an id"},
        delivery_info={"exchange": "", "routing_key": "celery"},
    )


def consumed_somewhere(app: Any, name: str) -> None:
    """Another worker consumes it, by -Q alone."""
    other = Celery("other", broker=app.conf.broker_url, set_as_current=False)
    other.amqp.queues.select([name])
    with other.connection() as connection:
        other.amqp.queues[name](connection.default_channel).declare()
    other.close()


def test_a_queue_that_nobody_declared_takes_no_message(app: Any, client: Any, caplog: Any) -> None:
    assert not move(app, message(), "romy")

    assert client.llen("romy") == 0
    assert "cannot have its last try on the queue romy, and has it here" in caplog.text
    assert "NoSuchQueue" in caplog.text


@pytest.mark.parametrize("named", ["in task_queues", "by -Q of another worker"])
def test_a_queue_that_is_declared_takes_it(app: Any, client: Any, named: str) -> None:
    if named == "in task_queues":
        app.conf.task_queues = [Queue("celery"), Queue("roomy")]
    else:
        consumed_somewhere(app, "roomy")

    assert move(app, message(), "roomy")
    assert client.llen("roomy") == 1


def test_ch023_a_worker_says_at_its_start_that_nobody_has_declared_the_queue(app: Any, caplog: Any) -> None:
    consumed_somewhere(app, "roomy")

    @app.task(name="render", poison_queue="romy", shared=False)  # type: ignore[untyped-decorator]
    def render() -> None: ...

    with caplog.at_level(logging.WARNING, "hardening"):
        say_nowhere(app, TERMS)

    [record] = caplog.records
    assert record.getMessage().startswith("CH023: no worker reads the queue 'romy'")


def test_ch023_the_checks_name_a_queue_that_the_project_does_not_name(app: Any) -> None:
    assert nowhere_findings(app, MISTYPED) == [], "its queues may all be those of -Q"

    app.conf.task_queues = [Queue("celery"), Queue("roomy")]

    assert nowhere_findings(app, TERMS) == []
    [finding] = nowhere_findings(app, MISTYPED)
    assert (finding.code, finding.level.name, "'romy'" in finding.what) == ("CH023", "WARNING", True)


def test_a_broker_that_does_not_answer_is_not_judged(app: Any, caplog: Any) -> None:
    app.conf.broker_url = "redis://127.0.0.1:1/0"

    with caplog.at_level(logging.WARNING, "hardening"):
        say_nowhere(app, MISTYPED)

    assert caplog.records == []
