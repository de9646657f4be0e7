"""The dlq_* commands: what they select, print, change, and their exit codes."""

from __future__ import annotations

import ast
import json
from io import StringIO
from uuid import uuid4

import pytest
from celery import Celery
from django.core.management import CommandError, call_command, load_command_class
from django.core.management.base import SystemCheckError
from kombu import Queue

from dlq.models import DeadLetter
from dlq.sink import DatabaseSink
from hardening.core.parking import LetterRefused, publish_letter
from tests.helpers.dlq_letters import attempt, body_of, letter

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def app(monkeypatch) -> Celery:
    app = Celery("commands", broker=f"memory://{uuid4()}", set_as_current=False)
    app.conf.task_queues = [Queue("payments"), Queue("slow")]
    monkeypatch.setattr("dlq.replay.celery_app", lambda: app)
    monkeypatch.setattr("dlq.management.commands.dlq_ingest.celery_app", lambda: app)
    with app.connection() as connection:
        for queue in ("payments", "slow"):
            Queue(queue)(connection.default_channel).declare()
    return app


def run(*args: str) -> str:
    out = StringIO()
    call_command(*args, stdout=out, stderr=StringIO())
    return out.getvalue()


def run_json(*args: str):
    return json.loads(run(*args, "--json"))


def kept(**fields) -> DeadLetter:
    record = letter(**fields)
    DatabaseSink().keep(record)
    row: DeadLetter = DeadLetter.objects.get(task_id=record.task_id)
    return row


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ((), 2),
        (("--state", "open"), 2),
        (("--state", "discarded"), 0),
        (("--task", "other.task"), 1),
        (("--queue", "slow"), 1),
        (("--reason", "time_limit"), 1),
        (("--error-class", "shop.errors.CardDeclined"), 2),
        (("--verdict", "transient"), 1),
        (("--task", "other.task", "--queue", "payments"), 0),
        (("--limit", "1"), 1),
    ],
)
def test_list_shows_what_the_filters_allow(options, count) -> None:
    kept()
    row = kept(
        task_name="other.task",
        queue="slow",
        reason="time_limit",
        attempts=(attempt(1, verdict="transient", rule="celery.time_limit"),),
    )

    assert len(run_json("dlq_list", *options)) == count
    assert (str(row.pk) in run("dlq_list", *options)) == (
        count > 0 and "payments" not in options
    ) or count == 1


def test_show_prints_everything_but_the_secrets() -> None:
    row = kept(body=body_of(41, "hunter22", card_number="4111111111111111", note="seen"))

    text, shown = run("dlq_show", str(row.pk)), run_json("dlq_show", str(row.pk))

    assert shown["arguments"] == {
        "order_id": "41",
        "password": '"[redacted]"',
        "card_number": '"[redacted]"',
        "note": '"seen"',
    }
    assert [attempt["number"] for attempt in shown["attempts"]] == [2, 1]
    for output in (text, json.dumps(shown)):
        assert "declined at attempt 1" in output
        assert "hunter22" not in output
        assert "4111111111111111" not in output


def test_show_prints_the_verdict_and_rule_of_each_attempt() -> None:
    row = kept(attempts=(attempt(1, verdict="transient", rule="http.status 503"), attempt(2)))

    text, shown = run("dlq_show", str(row.pk)), run_json("dlq_show", str(row.pk))

    assert "declined at attempt 1\n    transient by http.status 503\n" in text
    assert text.count(" by http.status") == 1
    assert [(a["verdict"], a["rule"]) for a in shown["attempts"]] == [
        ("", ""),
        ("transient", "http.status 503"),
    ]


def test_unclassified_errors_are_listed_with_settings_that_name_them() -> None:
    for error_class in ("acme.client.Busy", "acme.client.Busy", "\x1b[2Jevil"):
        kept(reason="unclassified", attempts=(attempt(1, error_class=error_class, verdict="unknown"),))
    kept(attempts=(attempt(1, error_class="acme.Known", verdict="transient"),))

    text, found = run("dlq_unclassified"), run_json("dlq_unclassified")

    assert text.startswith("2 letters  2026-03-01T12:00:00+00:00")
    assert '"acme.client.Busy": "transient"' in text
    assert "acme.Known" not in text
    assert "\x1b" not in text
    assert [(each["error_class"], each["letters"], each["tasks"]) for each in found["classes"]] == [
        ("acme.client.Busy", 2, ["shop.tasks.charge"]),
        ("\x1b[2Jevil", 1, ["shop.tasks.charge"]),
    ]
    assert found["classes"][0]["explain"] == "manage.py hardening_explain acme.client.Busy"
    ast.parse(found["snippet"])


def test_without_unclassified_errors_there_is_no_snippet_to_paste() -> None:
    assert run("dlq_unclassified") == ""


def test_replay_sends_the_given_letters(app) -> None:
    rows = [kept(), kept()]

    assert run("dlq_replay", str(rows[0].pk)).startswith("1 sent")
    assert run_json("dlq_replay", str(rows[1].pk), "--queue", "slow")["sent"] == [str(rows[1].pk)]

    assert DeadLetter.objects.replayed().count() == 2
    assert rows[0].__class__.objects.get(pk=rows[0].pk).claimed_by.startswith("command line")


def test_replay_by_filters_sends_open_letters_only_the_oldest_first(app) -> None:
    wanted = kept(task_name="other.task")
    kept()

    assert run_json("dlq_replay", "--task", "other.task")["sent"] == [str(wanted.pk)]
    assert run_json("dlq_replay", "--task", "other.task")["sent"] == []


def test_all_letters_are_touched_only_with_all(app) -> None:
    kept()

    for command in ("dlq_replay", "dlq_discard"):
        with pytest.raises(CommandError, match="--all"):
            run(command)
    with pytest.raises(CommandError, match="not several"):
        run("dlq_replay", str(uuid4()), "--all")
    assert DeadLetter.objects.open().count() == 1
    assert run("dlq_replay", "--all").startswith("1 sent")


@pytest.mark.parametrize("command", ["dlq_replay", "dlq_discard"])
def test_a_dry_run_changes_nothing(app, command) -> None:
    row = kept()

    outcome = run_json(command, "--all", "--dry-run")

    assert outcome["dry_run"] is True
    assert str(row.pk) in str(outcome)
    assert "would be" in run(command, str(row.pk), "--dry-run")
    assert DeadLetter.objects.open().count() == 1


def test_discard_records_who_and_why() -> None:
    row = kept()

    assert run("dlq_discard", str(row.pk), "--reason", "known bug").startswith("1 discarded")

    row.refresh_from_db()
    assert (row.state, row.discard_reason) == ("discarded", "known bug")
    assert row.closed_by.startswith("command line")
    assert "skipped: discarded 1" in run("dlq_discard", str(row.pk))


@pytest.mark.parametrize("command", ["dlq_show", "dlq_replay", "dlq_discard"])
@pytest.mark.parametrize("letter_id", ["no-id", "6b3d2a3e-6c5b-4a55-9f57-3f8f0b0a8f11"])
def test_an_id_without_a_letter_is_an_error(app, command, letter_id) -> None:
    with pytest.raises(CommandError) as caught:
        run(command, letter_id)
    assert caught.value.returncode == 1


def test_a_replay_that_fails_is_an_error_and_says_why(app, monkeypatch) -> None:
    down = Celery("down", broker="redis://127.0.0.1:1/0", set_as_current=False)
    monkeypatch.setattr("dlq.replay.celery_app", lambda: down)
    row = kept()
    errors = StringIO()

    with pytest.raises(CommandError, match="1 of 1 letters were not sent"):
        call_command("dlq_replay", str(row.pk), stdout=StringIO(), stderr=errors)

    assert str(row.pk) in errors.getvalue()


def test_ingest_takes_in_all_parked_letters_or_up_to_the_limit(app, settings) -> None:
    settings.DLQ = {"INGEST_BATCH": 2}
    for _ in range(5):
        publish_letter(app, letter())

    assert run_json("dlq_ingest", "--limit", "1") == {"taken": 1, "refused": 0}
    assert run_json("dlq_ingest") == {"taken": 4, "refused": 0}
    assert DeadLetter.objects.count() == 5


def test_ingest_says_what_was_refused_and_takes_it_in_later(app, monkeypatch) -> None:
    real = DatabaseSink.keep

    def keep(self, record) -> None:
        if record.task_id == "big":
            raise LetterRefused("too big")
        real(self, record)

    for task_id in ("big", "small"):
        publish_letter(app, letter(task_id=task_id))
    with monkeypatch.context() as patch:
        patch.setattr(DatabaseSink, "keep", keep)
        with pytest.raises(CommandError, match=r"1 letters were refused.*dead_letters\.refused.*--refused"):
            run("dlq_ingest")
        assert run("dlq_ingest").startswith("0 letters")
        with pytest.raises(CommandError, match="1 letters were refused"):
            run("dlq_ingest", "--refused")

    assert run_json("dlq_ingest", "--refused") == {"taken": 1, "refused": 0}
    assert set(DeadLetter.objects.values_list("task_id", flat=True)) == {"big", "small"}


@pytest.mark.parametrize(
    "command",
    [("dlq_list",), ("dlq_replay", "--all"), ("dlq_discard", "--all"), ("dlq_ingest",)],
)
@pytest.mark.parametrize("limit", ["-1", "0", "many"])
def test_a_limit_below_one_is_an_error_and_changes_nothing(app, command, limit) -> None:
    kept()

    with pytest.raises(CommandError, match=f"'{limit}' is not a whole number from 1"):
        run(*command, f"--limit={limit}")

    assert DeadLetter.objects.open().count() == 1


def test_replay_to_a_queue_that_nobody_knows_must_be_forced(app) -> None:
    row = kept()
    with app.connection() as connection:
        Queue("elsewhere")(connection.default_channel).declare()

    with pytest.raises(CommandError, match=r"no queue 'elsewhere'.*payments, slow.*--force-queue"):
        run("dlq_replay", str(row.pk), "--queue", "elsewhere")
    assert DeadLetter.objects.open().count() == 1

    assert run("dlq_replay", str(row.pk), "--queue", "elsewhere", "--force-queue").startswith("1 sent")


def test_show_counts_attempts_that_are_not_kept() -> None:
    whole, cut = kept(), kept(attempts=(attempt(60), attempt(61)))

    assert "59 earlier attempts are not kept" in run("dlq_show", str(cut.pk))
    assert run_json("dlq_show", str(cut.pk))["attempts_not_kept"] == 59
    assert "not kept" not in run("dlq_show", str(whole.pk))


def test_letters_are_within_reach_while_a_system_check_fails(app, settings) -> None:
    row = kept()
    settings.DLQ = {"INGEST_BATCH": 0}
    with pytest.raises(SystemCheckError):
        call_command("check")

    for name, *arguments in (
        ("dlq_list",),
        ("dlq_unclassified",),
        ("dlq_show", str(row.pk)),
        ("dlq_replay", str(row.pk)),
        ("dlq_discard", str(row.pk)),
        ("dlq_ingest",),
    ):
        # As from a shell: call_command runs no checks.
        load_command_class("dlq", name).run_from_argv(["manage.py", name, *arguments])

    row.refresh_from_db()
    assert row.state == "replayed"


def test_an_operation_is_planned_counted_started_and_cancelled(app, monkeypatch) -> None:
    monkeypatch.setattr("dlq.operations.examine.celery_app", lambda: app)
    row = kept()

    planned = run_json("dlq_replay", "--all", "--plan", "--pace", "rate:50", "--why", "mended")
    started = run_json("dlq_operations", "start", planned["operation"])

    assert planned["counts"] == {"unregistered": 1}
    assert (started["state"], started["pace"], started["why"]) == ("running", "50/s", "mended")
    with pytest.raises(CommandError, match="not in a state for start"):
        run("dlq_operations", "start", planned["operation"])
    cancelled = run_json("dlq_operations", "cancel", planned["operation"])
    assert (cancelled["state"], cancelled["not_sent_because"]) == ("cancelled", {"cancelled": 1})
    shown = run_json("dlq_operations", "show", planned["operation"], "--items")
    assert [event["what"] for event in shown["events"]] == ["made", "started", "cancelled"]
    assert [item["letter_id"] for item in shown["items"]] == [str(row.pk)]
    assert [each["operation"] for each in run_json("dlq_operations", "list")] == [planned["operation"]]
    row.refresh_from_db()
    assert row.state == "open"


@pytest.mark.parametrize(
    "options",
    [("--pace", "fast"), ("--pace", "ramp", "--dry-run"), ("--plan", "--queue", "no-such-queue")],
)
def test_an_operation_that_cannot_be_made_leaves_none(app, monkeypatch, options) -> None:
    monkeypatch.setattr("dlq.operations.making.celery_app", lambda: app)
    kept()

    with pytest.raises(CommandError):
        run("dlq_replay", "--all", *options)

    assert run_json("dlq_operations", "list") == []
