"""A database that is silent, as one behind a broken network, holds nobody up for long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from uuid import UUID

import pytest
from django.db import connections, transaction

from dlq import ingest as ingest_module
from dlq import sink as sink_module
from dlq.ingest import ingest_duty
from dlq.models import DeadLetter
from dlq.operations import duty
from dlq.operations.duty import operations_duty
from dlq.sink import DatabaseSink
from hardening.core.errors import SinkUnavailable
from hardening.core.parking import LetterRefused, parking_queue, publish_letter
from hardening.testing.servers import LocalServer, MariaDBServer, PostgresServer
from tests.conftest import serve
from tests.helpers.databases import database_from_url
from tests.helpers.dlq_databases import database_alias_for
from tests.helpers.dlq_letters import letter
from tests.helpers.hardened_apps import make_app
from tests.helpers.mishaps import frozen, within
from tests.helpers.operating import kept, started, states

ALIAS = "silent"
LONG_ENOUGH = 6.0  # Seconds, for what is bounded by one.


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    """A server that the tests may freeze."""
    if request.param == "postgres":
        yield from serve(PostgresServer)
    else:
        import pymysql

        pymysql.version_info = (2, 2, 8, "final", 0)
        yield from serve(MariaDBServer)


@pytest.fixture
def sink(server, settings, django_db_blocker, monkeypatch) -> Iterator[DatabaseSink]:
    from django.core.management import call_command

    monkeypatch.setattr(sink_module, "_ANSWER_SECONDS", 1)
    monkeypatch.setattr(ingest_module, "_CONNECT_SECONDS", 1)
    with django_db_blocker.unblock(), database_alias_for(ALIAS, database_from_url(server.url)):
        settings.DLQ = {"DATABASE": ALIAS}
        call_command("migrate", "dlq", database=ALIAS, verbosity=0)
        DeadLetter.objects.all().delete()
        yield DatabaseSink()


@pytest.mark.parametrize("opened", [True, False], ids=["opened", "closed"])
def test_a_letter_is_given_up_soon_and_kept_once_when_it_is_handed_in_again(server, sink, opened) -> None:
    connections[ALIAS].ensure_connection()
    if not opened:
        sink.close()
    record = letter()

    with frozen(server):
        with within(LONG_ENOUGH), pytest.raises(SinkUnavailable, match=r"got no answer in \d s") as caught:
            sink.keep(record)
        assert not isinstance(caught.value, LetterRefused)

    sink.keep(record)
    assert DeadLetter.objects.get().task_id == record.task_id


def test_a_caller_in_a_transaction_is_held_up_no_longer(server, sink) -> None:
    with transaction.atomic(using=ALIAS):
        DeadLetter.objects.count()
        with frozen(server), within(LONG_ENOUGH), pytest.raises(SinkUnavailable):
            sink.keep(letter())
        assert DeadLetter.objects.count() == 0


def test_a_workers_parent_leaves_parked_letters_where_they_are(server, sink, caplog) -> None:
    app = make_app()
    with app.connection() as connection:  # All tests of a process share the broker in its memory.
        connection.default_channel.queue_purge(parking_queue())
    publish_letter(app, letter(task_id="parked"))

    with frozen(server), within(LONG_ENOUGH):
        ingest_duty(app)

    assert "parked letters stay on the broker" in caplog.text
    assert connections[ALIAS].connection is None
    ingest_duty(app)
    assert connections[ALIAS].connection is None
    assert DeadLetter.objects.get().task_id == "parked"


def test_a_workers_parent_leaves_operations_when_the_database_falls_silent_in_a_turn(
    server, sink, caplog, monkeypatch
) -> None:
    monkeypatch.setattr(duty, "_ANSWER_SECONDS", 1)
    operation = started([kept()])
    looked_up = duty.runnable

    with ExitStack() as silent:

        def and_then_silent() -> list[UUID]:
            found = looked_up()
            silent.enter_context(frozen(server))
            return found

        monkeypatch.setattr(duty, "runnable", and_then_silent)
        with within(LONG_ENOUGH):
            operations_duty(make_app())

    assert "operations have no turn in this worker now" in caplog.text
    assert states(operation) == ["waiting"]
