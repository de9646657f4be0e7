"""Letters parked on a real broker come into the database, in order, and none is lost on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery
from django.db import OperationalError, connections
from kombu import Queue

from dlq.ingest import UNREADABLE, ingest, ingest_duty
from dlq.models import DeadLetter
from dlq.sink import DatabaseSink
from hardening.core.broker import confirming_connection, publish_raw
from hardening.core.connection import KeptConnection
from hardening.core.letter import dump_letter
from hardening.core.parking import (
    DEAD_LETTER_QUEUE,
    Drained,
    LetterRefused,
    drain_letters,
    publish_letter,
    refused_queue,
)
from tests.helpers.dlq_databases import letters_in
from tests.helpers.dlq_letters import FAILED_AT, letter
from tests.helpers.wait import wait_until


@pytest.fixture(params=["redis", "rabbitmq"])
def app(request) -> Iterator[Celery]:
    with Celery(
        "ingest", broker=request.getfixturevalue(f"{request.param}_url"), set_as_current=False
    ) as app:
        yield app


@pytest.fixture(autouse=True)
def alias(request, tmp_path, settings, django_db_blocker) -> Iterator[str]:
    kind = getattr(request, "param", "sqlite")
    with django_db_blocker.unblock(), letters_in(kind, request, tmp_path) as name:
        settings.DLQ = {"DATABASE": name}
        yield name


def park(app: Celery, count: int) -> list[str]:
    ids = [f"task-{number}" for number in range(count)]
    for number, task_id in enumerate(ids):
        publish_letter(app, letter(task_id=task_id, failed_at=FAILED_AT + timedelta(seconds=number)))
    return ids


def stored() -> list[str]:
    return list(DeadLetter.objects.order_by("stored_at").values_list("task_id", flat=True))


def test_parked_letters_are_taken_in_oldest_first_up_to_the_limit(app) -> None:
    ids = park(app, 5)

    assert ingest(app, limit=3).stored == 3
    assert stored() == ids[:3]
    assert ingest(app, limit=100).stored == 2
    assert stored() == ids
    assert ingest(app, limit=100).stored == 0


def test_a_store_that_fails_in_the_middle_loses_nothing_and_keeps_the_order(app, monkeypatch) -> None:
    ids = park(app, 6)
    real, calls = DatabaseSink.keep, []

    def failing(self, record) -> None:
        calls.append(record.task_id)
        if len(calls) == 3:
            raise OperationalError("gone")
        real(self, record)

    monkeypatch.setattr(DatabaseSink, "keep", failing)
    with pytest.raises(OperationalError):
        ingest(app, limit=100)
    assert stored() == ids[:2]

    assert ingest(app, limit=100).stored == 4
    assert stored() == ids
    assert calls == [*ids[:3], *ids[2:]]


def test_an_entry_that_is_no_letter_is_kept_with_its_bytes(app) -> None:
    with confirming_connection(app) as connection:
        for _ in range(2):
            publish_raw(
                connection,
                body=b"\xff not a letter",
                content_type="application/octet-stream",
                content_encoding="binary",
                headers={},
                routing_key=DEAD_LETTER_QUEUE,
            )
        publish_letter(app, letter(task_id="good"))

    # On RabbitMQ the queue came with the first letter, so that what was sent before it has no queue.
    with confirming_connection(app) as connection:
        publish_raw(
            connection,
            body=b"\xff not a letter",
            content_type="application/octet-stream",
            content_encoding="binary",
            headers={},
            routing_key=DEAD_LETTER_QUEUE,
        )
    ingest(app, limit=100)

    row = DeadLetter.objects.get(task_name=UNREADABLE)
    assert row.reason == "internal_error"
    assert row.record().payload.body == b"\xff not a letter"
    assert DeadLetter.objects.filter(task_id="good").exists()


def test_the_duty_leaves_no_database_connection_open(app, alias) -> None:
    ids = park(app, 2)

    ingest_duty(app)

    assert connections[alias].connection is None
    assert stored() == ids


def test_the_duty_touches_no_letter_while_the_database_is_down(app, monkeypatch) -> None:
    park(app, 2)

    def down(*_args):
        raise OperationalError("no connection")

    monkeypatch.setattr(KeptConnection, "in_place", down)
    monkeypatch.setattr(DatabaseSink, "keep", lambda *_: pytest.fail("asked the database"))

    ingest_duty(app)

    monkeypatch.undo()
    assert ingest(app, limit=100).stored == 2


KILLED_WHILE_STORING = """
import os, signal
from celery import Celery
from hardening.core.parking import drain_letters
app = Celery("killed", broker={broker!r}, set_as_current=False)
drain_letters(app, lambda letter: os.kill(os.getpid(), signal.SIGKILL), reject=print, limit=10)
"""


def test_an_ingest_killed_while_it_stores_a_letter_loses_none(app) -> None:
    ids = park(app, 3)
    script = KILLED_WHILE_STORING.format(broker=app.conf.broker_url)
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}

    killed = subprocess.run([sys.executable, "-c", script], env=env, check=False, timeout=60)

    assert killed.returncode == -signal.SIGKILL
    # RabbitMQ gives a dead reader's letter back when it notices the death; Redis's lock has an expiry.
    wait_until(lambda: ingest(app, limit=10).stored >= 0 and stored() == ids, 45, lambda: str(stored()))


def test_a_letter_is_not_taken_in_by_two_readers_at_once(app) -> None:
    park(app, 1)
    seen: list[int] = []

    def reads_while_another_reads(record: object) -> None:
        seen.append(drain_letters(app, lambda other: seen.append(-1), reject=print, limit=10).stored)

    assert drain_letters(app, reads_while_another_reads, reject=print, limit=10).stored == 1
    assert seen == [0]


@pytest.fixture
def refuses(monkeypatch) -> set[str]:
    """Task ids that the store refuses."""
    real, refused = DatabaseSink.keep, set[str]()

    def keep(self, record) -> None:
        if record.task_id in refused:
            raise LetterRefused(f"the letter of {record.task_id} is refused")
        real(self, record)

    monkeypatch.setattr(DatabaseSink, "keep", keep)
    return refused


def raw_entries(app: Celery, queue: str) -> list[bytes]:
    with app.connection() as connection:
        bound = Queue(queue)(connection.default_channel)
        bodies = []
        while message := bound.get(no_ack=True):
            body: Any = message.body
            bodies.append(body if isinstance(body, bytes) else body.encode())
        return bodies


def test_a_letter_that_the_database_refuses_holds_up_none_behind_it(app, refuses, caplog) -> None:
    ids = park(app, 5)
    refuses |= {ids[0], ids[3]}

    assert ingest(app, limit=100) == Drained(stored=3, refused=2)
    assert ingest(app, limit=100) == Drained()

    assert stored() == [ids[1], ids[2], ids[4]]
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 2
    assert all("manage.py dlq_ingest --refused" in record.getMessage() for record in errors)
    assert ids[0] in errors[0].getMessage()


def test_a_refused_letter_is_moved_byte_for_byte_to_a_queue_of_its_own(app, refuses) -> None:
    record = letter(task_id="big")
    publish_letter(app, record)
    refuses.add("big")

    ingest(app, limit=100)

    assert raw_entries(app, refused_queue()) == [dump_letter(record)]
    assert raw_entries(app, DEAD_LETTER_QUEUE) == []


def test_refused_letters_are_tried_again_once_each_and_stay_when_refused_again(app, refuses) -> None:
    ids = park(app, 3)
    refuses |= set(ids)
    ingest(app, limit=100)
    refuses.remove(ids[1])

    assert ingest(app, limit=100, refused=True) == Drained(stored=1, refused=2)
    assert stored() == [ids[1]]

    refuses.clear()
    assert ingest(app, limit=100, refused=True) == Drained(stored=2)
    assert sorted(stored()) == ids
    assert ingest(app, limit=100, refused=True) == Drained()


def test_a_refused_letter_stays_parked_when_the_second_queue_cannot_take_it(
    app, refuses, monkeypatch
) -> None:
    ids = park(app, 2)
    refuses.add(ids[0])

    def down(*_args, **_kwargs) -> None:
        raise OSError("the broker takes nothing")

    with monkeypatch.context() as patch:
        patch.setattr("hardening.core.parking._set_aside", down)
        with pytest.raises(OSError, match="takes nothing"):
            ingest(app, limit=100)
    refuses.clear()

    assert ingest(app, limit=100) == Drained(stored=2)
    assert stored() == ids


def test_an_entry_nested_too_deeply_to_be_read_is_kept_as_unreadable(app) -> None:
    park(app, 1)
    with confirming_connection(app) as connection:
        publish_raw(
            connection,
            body=b"[" * 200_000,
            content_type="application/octet-stream",
            content_encoding="binary",
            headers={},
            routing_key=DEAD_LETTER_QUEUE,
        )

    assert ingest(app, limit=100) == Drained(stored=2)
    assert DeadLetter.objects.filter(task_name=UNREADABLE).count() == 1


@pytest.mark.parametrize("alias", ["mariadb"], indirect=True)  # It limits the size of a statement.
def test_a_parked_letter_that_is_too_large_for_the_server_waits_until_it_is_not(app, alias, caplog) -> None:
    connections[alias].cursor().execute("SET GLOBAL max_allowed_packet = 1048576")
    connections[alias].close()
    try:
        for task_id, size in (("big", 2_000_000), ("small", 10)):
            publish_letter(app, letter(task_id=task_id, body=b"x" * size))
        ingest_duty(app)
        ingest_duty(app)
        assert stored() == ["small"]
        assert ["task big" in r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == [True]
    finally:
        connections[alias].cursor().execute("SET GLOBAL max_allowed_packet = 16777216")
        connections[alias].close()

    assert ingest(app, limit=100, refused=True) == Drained(stored=1)
    assert stored() == ["small", "big"]
