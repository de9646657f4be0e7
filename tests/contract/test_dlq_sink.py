"""DatabaseSink keeps its promise on every database that we support."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connections, transaction
from django.db.models.signals import post_save, pre_save
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dlq import sink as sink_module
from dlq import unclassified as unclassified_module
from dlq.conf import dlq_settings
from dlq.discard import discard
from dlq.models import Attempt, DeadLetter
from dlq.rows import letter_row
from dlq.sink import DatabaseSink
from dlq.unclassified import unclassified
from hardening.core.errors import SinkUnavailable
from hardening.core.letter import Canvas, Payload
from hardening.core.letter import DeadLetter as LetterRecord
from hardening.core.parking import LetterRefused
from hardening.core.sink import DeadLetterSink
from tests.helpers.databases import database_from_url
from tests.helpers.dlq_databases import KINDS, database_alias_for, letters_in
from tests.helpers.dlq_letters import FAILED_AT, attempt, letter
from tests.helpers.mishaps import end_session, rename


@pytest.fixture(params=KINDS)
def alias(request, tmp_path, settings, django_db_blocker) -> Iterator[str]:
    with django_db_blocker.unblock(), letters_in(request.param, request, tmp_path) as name:
        settings.DLQ = {"DATABASE": name}
        yield name


def test_the_sink_fulfils_the_port() -> None:
    assert isinstance(DatabaseSink(), DeadLetterSink)


def test_every_field_of_a_kept_letter_comes_back(alias) -> None:
    record = letter(replay_number=2, eta="2026-03-01T10:00:00", redelivered=True)

    DatabaseSink().keep(record)

    row = DeadLetter.objects.get()
    assert row.record() == record.__class__(
        **{name: getattr(record, name) for name in record.__slots__ if name != "attempts"}, attempts=()
    )
    assert (row.task_id, row.state, row.error_class, row.captures) == (
        record.task_id,
        "open",
        "shop.errors.CardDeclined",
        1,
    )
    assert [(a.number, a.message) for a in row.attempts.all()] == [
        (2, "declined at attempt 2"),
        (1, "declined at attempt 1"),
    ]


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)  # Others take no two tables in one statement.
@pytest.mark.parametrize("attempts", [0, 1, 60])
def test_a_new_letter_costs_one_round_trip(alias, attempts) -> None:
    connections[alias].ensure_connection()

    with CaptureQueriesContext(connections[alias]) as statements:
        DatabaseSink().keep(letter(attempts=tuple(attempt(number + 1) for number in range(attempts))))

    assert len(statements) == 1
    assert DeadLetter.objects.get().attempts.count() == attempts


def test_a_receiver_of_the_project_costs_no_letter(alias) -> None:
    def receiver(**_kwargs: Any) -> None:
        raise RuntimeError("a bug of the project")

    for signal in (pre_save, post_save):
        signal.connect(receiver)
    try:
        DatabaseSink().keep(letter())
    finally:
        for signal in (pre_save, post_save):
            signal.disconnect(receiver)

    assert DeadLetter.objects.count() == 1


def test_the_same_failure_kept_again_is_one_letter_with_one_capture_more(alias) -> None:
    first = letter(attempts=(attempt(1),))
    again = letter(task_id=first.task_id, attempts=(attempt(1, message="poorer", traceback=""), attempt(2)))

    DatabaseSink().keep(first)
    DatabaseSink().keep(again)

    row = DeadLetter.objects.get()
    assert row.captures == 2
    assert row.error_message == "declined at attempt 1"
    assert [(a.number, a.message) for a in row.attempts.all()] == [
        (2, "declined at attempt 2"),
        (1, "declined at attempt 1"),
    ]


def test_a_failure_after_its_letter_was_closed_is_a_new_letter(alias) -> None:
    record = letter()
    DatabaseSink().keep(record)
    discard([DeadLetter.objects.get().pk], by="test", reason="known")

    DatabaseSink().keep(record)
    DatabaseSink().keep(record)

    assert list(DeadLetter.objects.order_by("occurrence").values_list("occurrence", "state", "captures")) == [
        (1, "discarded", 1),
        (2, "open", 2),
    ]


def test_another_body_or_replay_of_the_same_delivery_is_another_letter(alias) -> None:
    record = letter()

    DatabaseSink().keep(record)
    DatabaseSink().keep(letter(task_id=record.task_id, body=b"other"))
    DatabaseSink().keep(letter(task_id=record.task_id, replay_number=1))

    assert DeadLetter.objects.count() == 3


def test_task_ids_that_differ_in_case_or_beyond_the_column_are_different_deliveries(alias) -> None:
    for task_id in ("abc", "ABC", "abc ", "x" * 300 + "1", "x" * 300 + "2"):
        DatabaseSink().keep(letter(task_id=task_id))

    assert DeadLetter.objects.count() == 5
    assert {row.record().delivery_key for row in DeadLetter.objects.all()} >= {
        "x" * 300 + "1",
        "x" * 300 + "2",
    }


def test_no_text_or_number_makes_a_letter_unstorable(alias) -> None:
    hostile = "a\x00b\ud800c \U0001f4a5" + "x" * 400
    record = letter(
        task_id=hostile,
        task_name=hostile,
        replay_number=10**12,
        reason=hostile,
        queue=hostile,
        eta=hostile,
        priority=-(10**12),
        replay_of="no uuid",
        argument_names=(hostile,),
        canvas=Canvas(group=hostile, chain=(hostile,)),
        versions={hostile: hostile},
        attempts=(
            attempt(-5, message=hostile, traceback=hostile, error_class=hostile, started_at=None),
            attempt(-4, verdict=hostile, rule=hostile),
            attempt(-5),
        ),
    )

    DatabaseSink().keep(record)

    row = DeadLetter.objects.get()
    assert row.error_message
    assert row.record().payload.body == record.payload.body


def test_the_widest_names_fit_every_index(alias) -> None:
    # Four bytes a character, and nothing that a database could compress.
    wide = "".join(chr(0x20000 + 37 * number) for number in range(300))

    DatabaseSink().keep(
        letter(task_name=wide, queue=wide, attempts=(attempt(error_class=wide, verdict=wide, rule=wide),))
    )

    row = DeadLetter.objects.get()
    assert (row.error_class, row.task_name, row.rule) == (wide[:255],) * 3


def test_a_letter_without_attempts_is_kept(alias) -> None:
    DatabaseSink().keep(letter(attempts=()))

    assert DeadLetter.objects.get().error_class == ""


def test_verdict_and_rule_are_kept_of_each_attempt_and_in_the_letter_those_of_the_last(alias) -> None:
    DatabaseSink().keep(
        letter(
            attempts=(
                attempt(1, verdict="transient", rule="http.status 503"),
                attempt(2),
                attempt(3, verdict="permanent", rule="raised"),
            )
        )
    )

    row = DeadLetter.objects.get()
    assert (row.verdict, row.rule) == ("permanent", "raised")
    assert list(row.attempts.order_by("number").values_list("verdict", "rule")) == [
        ("transient", "http.status 503"),
        ("", ""),
        ("permanent", "raised"),
    ]


def test_a_letter_that_nobody_judged_has_no_verdict(alias) -> None:
    DatabaseSink().keep(letter(task_id="unjudged"))
    DatabaseSink().keep(letter(task_id="bare", attempts=()))

    assert set(DeadLetter.objects.values_list("verdict", "rule")) == {("", "")}


def test_an_unclassified_letter_is_unknown_also_where_its_attempt_does_not_say_so(alias) -> None:
    for attempts in ((), (attempt(1),), (attempt(1, verdict="transient"),)):
        DatabaseSink().keep(letter(reason="unclassified", attempts=attempts))

    assert list(DeadLetter.objects.values_list("verdict", flat=True)) == ["unknown"] * 3


def test_unclassified_errors_are_grouped_by_class(alias) -> None:
    moments = [FAILED_AT + timedelta(hours=hour) for hour in range(3)]
    for moment, task in zip(moments, ("a", "b", "b"), strict=True):
        keep_unknown("acme.Busy", task_name=task, failed_at=moment, started_at=moment)
    keep_unknown("acme.Odd")
    keep_unknown("acme.Known", verdict="transient")
    keep_unknown("")
    keep_unknown("acme.Gone")
    discard(
        DeadLetter.objects.filter(error_class="acme.Gone").values_list("pk", flat=True), by="t", reason=""
    )

    found = unclassified()

    assert [(each.error_class, each.letters) for each in found.classes] == [("acme.Busy", 3), ("acme.Odd", 1)]
    busy = found.classes[0]
    assert (busy.tasks, busy.more_tasks) == (("b", "a"), 0)
    assert (busy.first_seen_at, busy.last_failed_at) == (moments[0], moments[2])
    assert not found.more


def test_classes_and_tasks_of_unclassified_errors_are_bounded_and_the_others_told(alias, monkeypatch) -> None:
    monkeypatch.setattr(unclassified_module, "MOST_CLASSES", 2)
    monkeypatch.setattr(unclassified_module, "MOST_TASKS", 2)
    for number in range(4):
        keep_unknown("acme.Busy", task_name=f"task{number}")
    for error_class in ("acme.B", "acme.A"):
        keep_unknown(error_class)

    found = unclassified()

    assert [each.error_class for each in found.classes] == ["acme.Busy", "acme.A"]
    assert (found.classes[0].tasks, found.classes[0].more_tasks) == (("task0", "task1"), 2)
    assert found.more


def test_a_letter_kept_in_a_broken_transaction_is_committed_on_its_own(alias) -> None:
    record = letter()
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias):
        with pytest.raises(DatabaseError), transaction.atomic(using=alias, savepoint=False):
            connections[alias].cursor().execute("SELECT * FROM no_such_table")
        before = connections[alias]
        DatabaseSink().keep(record)
        assert connections[alias] is before
        raise ZeroDivisionError

    assert DeadLetter.objects.get().task_id == record.task_id


def test_a_letter_survives_the_rollback_of_the_callers_transaction(alias) -> None:
    if alias == "dlq_sqlite":
        # One writer, and a reader keeps it from committing unless the file is in WAL mode.
        connections[alias].cursor().execute("PRAGMA journal_mode=WAL")
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias):
        list(DeadLetter.objects.all())
        DatabaseSink().keep(letter())
        raise ZeroDivisionError

    assert DeadLetter.objects.count() == 1


@pytest.mark.parametrize("alias", ["sqlite"], indirect=True)  # The others have many writers.
def test_a_caller_that_holds_the_one_writer_of_a_file_gets_sink_unavailable_soon(alias) -> None:
    connections[alias].settings_dict["OPTIONS"]["timeout"] = 0.2
    DatabaseSink().keep(letter())

    with transaction.atomic(using=alias):
        DeadLetter.objects.update(worker="someone")
        with pytest.raises(SinkUnavailable, match="locked"):
            DatabaseSink().keep(letter())

    assert DeadLetter.objects.count() == 1


@pytest.mark.parametrize("alias", ["sqlite"], indirect=True)  # The others have time-outs of another kind.
def test_whoever_used_the_connection_waits_for_a_locked_file_as_before(alias) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 1234")
        DatabaseSink().keep(letter())
        cursor.execute("PRAGMA busy_timeout")
        assert cursor.fetchone() == (1234,)


@pytest.mark.parametrize("closed_before", [False, True])
def test_processes_that_keep_the_same_failure_at_once_make_one_letter(alias, closed_before) -> None:
    record = letter()
    if closed_before:
        DatabaseSink().keep(record)
        discard([DeadLetter.objects.get().pk], by="test", reason="known")
    errors: list[BaseException] = []
    start = threading.Barrier(8)

    def keep() -> None:
        sink = DatabaseSink()
        try:
            start.wait()
            for _ in range(5):
                sink.keep(record)
        except BaseException as exc:
            errors.append(exc)
        finally:
            sink.close()

    threads = [threading.Thread(target=keep) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    row = DeadLetter.objects.open().get()
    assert row.captures == 40
    assert row.occurrence == (2 if closed_before else 1)
    assert Attempt.objects.filter(letter=row).count() == 2


@pytest.mark.parametrize("alias", ["postgres", "mariadb"], indirect=True)  # SQLite has no server.
def test_a_connection_that_the_server_closed_is_replaced_without_an_error(alias) -> None:
    DatabaseSink().keep(letter())
    end_session(alias)

    DatabaseSink().keep(letter())

    assert DeadLetter.objects.count() == 2


def test_close_leaves_no_connection_for_a_fork_to_inherit(alias) -> None:
    sink = DatabaseSink()
    sink.keep(letter())

    sink.close()

    assert connections[alias].connection is None


def test_the_failure_of_a_replay_closes_the_letter_that_was_put_back_after_a_lost_answer(alias) -> None:
    original = letter()
    DatabaseSink().keep(original)
    row = DeadLetter.objects.get()

    DatabaseSink().keep(
        letter(task_id="second", delivery_key=original.delivery_key, replay_number=1, replay_of=str(row.pk))
    )

    row.refresh_from_db()
    assert row.state == "replayed"
    follower = row.replays.get()
    assert (follower.task_id, follower.state) == ("second", "open")


def test_a_letter_is_kept_although_the_one_that_it_replays_is_gone(alias) -> None:
    DatabaseSink().keep(letter(replay_number=1, replay_of="6b3d2a3e-6c5b-4a55-9f57-3f8f0b0a8f11"))

    assert DeadLetter.objects.count() == 1


@pytest.mark.parametrize(
    "url", ["postgresql://u@127.0.0.1:1/x", "mysql://u@127.0.0.1:1/x", "sqlite:////no/dir/x"]
)
def test_a_database_that_is_down_is_reported_as_sink_unavailable(url, settings, django_db_blocker) -> None:
    if url.startswith("mysql"):
        import pymysql

        pymysql.version_info = (2, 2, 8, "final", 0)
    with django_db_blocker.unblock(), database_alias_for("down", database_from_url(url)):
        settings.DLQ = {"DATABASE": "down"}
        sink = DatabaseSink()

        with pytest.raises(SinkUnavailable, match=r"task t1 \(shop\.tasks\.charge\).*'down'") as caught:
            sink.keep(letter(task_id="t1"))

        assert isinstance(caught.value.__cause__, DatabaseError)


def test_keys_that_do_not_work_never_lead_to_a_payload_in_clear(alias, settings) -> None:
    settings.DLQ = {"DATABASE": alias, "ENCRYPTION_KEYS": ["not a key"]}
    assert dlq_settings().encryption_keys

    with pytest.raises(SinkUnavailable, match="not a Fernet key"):
        DatabaseSink().keep(letter())

    assert DeadLetter.objects.count() == 0


@pytest.mark.django_db
def test_a_database_in_memory_shares_the_tests_own_transaction() -> None:
    assert connections["default"].vendor == "sqlite"

    DatabaseSink().keep(letter(failed_at=timezone.now()))

    assert DeadLetter.objects.count() == 1


# What no record should hold and a producer may send.
odd: Any = {"number": 5, "list": ["a"], "none": None, "word": "one"}
ODD: list[dict[str, Any]] = [
    {"priority": "high"},
    {"priority": float("inf")},
    {"priority": [1]},
    {"task_id": 123, "delivery_key": 123},
    {"delivery_key": {"x": 1}, "replay_number": "two"},
    {"replay_number": float("inf")},
    {"root_id": {"a": 1}, "parent_id": 5, "task_name": ["a"], "reason": None},
    {"queue": 5, "exchange": None, "routing_key": b"x", "worker": 1, "release": 1.5},
    {"eta": 5, "expires": 30.0, "redelivered": "yes"},
    {"replay_of": 7},
    {"canvas": Canvas(group=odd["list"], chain=(odd,), callbacks=odd["number"])},
    {"argument_names": (1, None), "versions": ["celery"]},
    {"failed_at": datetime.min, "attempts": (attempt(1, started_at=datetime.max, failed_at=odd["word"]),)},
    {"attempts": (attempt(odd["word"], error_class=None, message=5, traceback=None, worker=3),)},
    {"attempts": (attempt(1, verdict=None, rule=["a"]), attempt(2, verdict=5, rule=odd))},
    {
        "payload": Payload(
            body=b"",
            content_type=odd["number"],
            content_encoding=None,
            headers={"id": 1},
            properties={"priority": "x"},
        )
    },
]


@pytest.mark.parametrize("fields", ODD, ids=lambda fields: "-".join(fields))
def test_a_letter_of_odd_types_is_kept_with_what_is_text_or_number_in_it(alias, fields) -> None:
    parts = {name: getattr(letter(), name) for name in LetterRecord.__slots__}

    DatabaseSink().keep(LetterRecord(**(parts | fields)))

    row = DeadLetter.objects.get()
    assert row.state == "open"
    assert row.record()
    assert str(row)
    assert row.replay_task_id


def test_what_is_no_whole_number_is_no_priority(alias) -> None:
    for priority in ("high", float("nan"), None):
        DatabaseSink().keep(letter(priority=priority))
    DatabaseSink().keep(letter(priority="7"))

    assert sorted(DeadLetter.objects.values_list("priority", flat=True), key=str) == [7, None, None, None]


def test_an_error_over_one_letter_while_the_database_takes_others_refuses_that_letter(
    alias, monkeypatch
) -> None:
    real = letter_row

    def broken(record, **kwargs):
        if record.task_id == "odd":
            raise AttributeError("secret in its text")
        return real(record, **kwargs)

    monkeypatch.setattr(sink_module, "letter_row", broken)

    with pytest.raises(LetterRefused, match=r"task odd .*is refused by.*AttributeError$"):
        DatabaseSink().keep(letter(task_id="odd"))
    DatabaseSink().keep(letter(task_id="good"))

    # Asking whether it takes others leaves nothing behind.
    assert list(DeadLetter.objects.values_list("task_id", flat=True)) == ["good"]
    assert set(Attempt.objects.values_list("letter__task_id", flat=True)) == {"good"}


def test_a_database_that_takes_no_letter_at_all_refuses_none(alias) -> None:
    rename(alias, "dlq_attempt", "dlq_attempt_away")
    try:
        with pytest.raises(SinkUnavailable) as caught:
            DatabaseSink().keep(letter())
    finally:
        rename(alias, "dlq_attempt_away", "dlq_attempt")

    assert not isinstance(caught.value, LetterRefused)
    DatabaseSink().keep(letter())


def test_a_database_that_is_only_locked_refuses_no_letter(alias, monkeypatch) -> None:
    def locked(*_args, **_kwargs):
        raise OperationalError("Lock wait timeout exceeded")

    monkeypatch.setattr(sink_module, "_LOCK_PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(DatabaseSink, "_keep_new", locked)

    with pytest.raises(SinkUnavailable) as caught:
        DatabaseSink().keep(letter())

    assert not isinstance(caught.value, LetterRefused)


@pytest.mark.parametrize("alias", ["mariadb"], indirect=True)  # The others have no such limit.
def test_a_letter_larger_than_a_packet_of_the_server_is_refused_and_others_are_kept(alias) -> None:
    DatabaseSink().keep(letter(task_id="before"))

    with pytest.raises(LetterRefused, match="task big"):
        DatabaseSink().keep(letter(task_id="big", body=b"x" * 20_000_000))
    DatabaseSink().keep(letter(task_id="after"))

    assert set(DeadLetter.objects.values_list("task_id", flat=True)) == {"before", "after"}


def keep_unknown(error_class: str, *, verdict: str = "unknown", started_at=FAILED_AT, **fields) -> None:
    failed = attempt(1, error_class=error_class, verdict=verdict, started_at=started_at)
    DatabaseSink().keep(letter(attempts=(failed,), **fields))
