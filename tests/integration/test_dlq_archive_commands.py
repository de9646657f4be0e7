"""dlq_restore, dlq_purge, dlq_prune, dlq_export, dlq_import: what they change and print, and exit codes."""

from __future__ import annotations

import csv
import json
import stat
import sys
from datetime import timedelta
from io import BytesIO, StringIO, TextIOWrapper
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command, load_command_class
from django.utils import timezone

from dlq.discard import discard
from dlq.models import DeadLetter
from dlq.sink import DatabaseSink
from tests.helpers.dlq_letters import body_of, letter

pytestmark = pytest.mark.django_db(transaction=True)


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


def archived(**fields) -> DeadLetter:
    row = kept(**fields)
    discard([row.pk], by="test", reason="known")
    return row


def test_restore_opens_discarded_letters_by_ids_and_filters() -> None:
    one, two, other = archived(), archived(task_name="other.task"), kept()

    assert run_json("dlq_restore", "--task", "other.task", "--dry-run")["restored"] == [str(two.pk)]
    assert run("dlq_restore", "--task", "other.task").startswith("1 restored")
    assert run_json("dlq_restore", str(one.pk), str(other.pk)) == {
        "restored": [str(one.pk)],
        "skipped": {"open": 1},
        "dry_run": False,
    }
    assert DeadLetter.objects.open().count() == 3
    with pytest.raises(CommandError, match="nothing selected"):
        run("dlq_restore")
    with pytest.raises(CommandError, match="do not exist"):
        run("dlq_restore", str(uuid4()))


def test_restore_says_why_a_letter_stays_in_the_archive() -> None:
    record = letter()
    for _ in range(2):
        DatabaseSink().keep(record)
        discard(DeadLetter.objects.open().values_list("pk", flat=True)[:1], by="test", reason="")
    run("dlq_restore", str(DeadLetter.objects.get(occurrence=2).pk))

    text = run("dlq_restore", str(DeadLetter.objects.get(occurrence=1).pk))

    assert "skipped: newer 1" in text
    assert "a newer letter of the same work is open" in text


def test_purge_asks_for_the_number_and_refuses_another() -> None:
    archived(), archived(), kept()

    for arguments, told in (
        (("--all",), "2 letters would be deleted for good; to do it, add --confirm 2"),
        (("--all", "--confirm", "3"), "2 letters would be deleted for good, not 3"),
        (("--confirm", "2"), "nothing selected"),
        (("--all", "--confirm", "2", "--limit", "1"), "--limit is not for this"),
    ):
        with pytest.raises(CommandError, match=told):
            run("dlq_purge", *arguments)
    assert run_json("dlq_purge", "--all", "--dry-run") == {"would_be_purged": 2, "dry_run": True}
    assert DeadLetter.objects.count() == 3

    assert run_json("dlq_purge", "--all", "--confirm", "2") == {"purged": 2, "skipped": {}}
    assert DeadLetter.objects.get().state == "open"


def test_purge_takes_a_state_an_age_and_ids() -> None:
    old, young = archived(), archived()
    DeadLetter.objects.filter(pk=old.pk).update(closed_at=timezone.now() - timedelta(days=91))

    assert run("dlq_purge", "--state", "replayed", "--confirm", "0").startswith("0 deleted")
    assert run("dlq_purge", "--older-than", "90 d", "--confirm", "1").startswith("1 deleted")
    assert DeadLetter.objects.get().pk == young.pk
    with pytest.raises(CommandError, match="1 ids do not exist"):
        run("dlq_purge", str(young.pk), str(old.pk), "--confirm", "1")
    assert DeadLetter.objects.count() == 0
    with pytest.raises(CommandError, match="is no age"):
        run("dlq_purge", "--older-than", "long", "--confirm", "0")


def test_prune_does_what_the_retention_says_and_tells_it_first(settings) -> None:
    row = archived()
    DeadLetter.objects.update(closed_at=timezone.now() - timedelta(days=91))
    with pytest.raises(CommandError, match="no retention is set"):
        run("dlq_prune")
    settings.DLQ = {"RETENTION": {"discarded": "90 d"}}

    assert run_json("dlq_prune", "--dry-run") == {"discarded_purged": 1, "items": 0, "dry_run": True}
    assert "discarded purged: 1" in run("dlq_prune", "--dry-run")
    assert DeadLetter.objects.get().pk == row.pk

    assert run_json("dlq_prune")["discarded_purged"] == 1
    assert DeadLetter.objects.count() == 0


def test_letters_go_from_one_store_into_another_through_a_file(tmp_path, settings) -> None:
    open_row, closed = kept(body=body_of(41, "hunter22")), archived(task_name="other.task")
    file = tmp_path / "letters.jsonl"
    run("dlq_export", "--all", "--whole", "--jsonl", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    DeadLetter.objects.all().delete()
    settings.DLQ = {"ENCRYPTION_KEYS": [Fernet.generate_key().decode()]}

    assert run_json("dlq_import", str(file), "--dry-run")["imported"] == 2
    assert DeadLetter.objects.count() == 0
    assert run("dlq_import", str(file)) == "2 imported, 0 here already\n"
    assert run_json("dlq_import", str(file), "--origin", "again")["known"] == 2

    assert set(DeadLetter.objects.values_list("pk", "state", "imported_from", "sealed_with")) == {
        (open_row.pk, "open", "letters.jsonl", "fernet"),
        (closed.pk, "discarded", "letters.jsonl", "fernet"),
    }
    assert run_json("dlq_show", str(open_row.pk))["imported_from"] == "letters.jsonl"


def test_bad_lines_are_an_error_with_their_numbers(tmp_path, monkeypatch) -> None:
    kept()
    file = tmp_path / "letters.jsonl"
    run("dlq_export", "--all", "--whole", "--jsonl", str(file))
    good = file.read_bytes()
    DeadLetter.objects.all().delete()
    errors = StringIO()
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"{}\n" + good + b"oops\n")))

    with pytest.raises(CommandError, match="2 bad lines were left out") as caught:
        call_command("dlq_import", "-", stdout=StringIO(), stderr=errors)

    assert caught.value.returncode == 1
    assert "line 1: it is no letter of version 1" in errors.getvalue()
    assert "line 3: it is no JSON" in errors.getvalue()
    assert DeadLetter.objects.get().imported_from == "stdin"
    with pytest.raises(CommandError, match="cannot be read"):
        run("dlq_import", str(tmp_path / "none"))


def test_export_writes_tables_and_lines_of_what_is_chosen(tmp_path) -> None:
    row = kept(task_name="other.task", body=body_of(41, "hunter22", note="harmless"))
    archived()
    table, lined = tmp_path / "a.csv", tmp_path / "a.jsonl"

    run("dlq_export", "--task", "other.task", "--csv", str(table))
    run("dlq_export", str(row.pk), "--jsonl", str(lined), "--payload")

    with table.open(newline="") as file:
        assert [(each["id"], each["task"]) for each in csv.DictReader(file)] == [(str(row.pk), "other.task")]
    (line,) = map(json.loads, lined.read_text().splitlines())
    assert line["arguments"]["note"] == '"harmless"'
    assert len(line["attempts"]) == 2
    assert "hunter22" not in lined.read_text() + table.read_text()


def test_export_refuses_what_makes_no_sense(tmp_path) -> None:
    row = kept()
    file = str(tmp_path / "a")

    for arguments, told in (
        ((str(row.pk),), "nothing to write"),
        (("--jsonl", file), "nothing selected"),
        ((str(row.pk), "--jsonl", file, "--body", file), "not several"),
        ((str(row.pk), str(row.pk), "--body", file), "are of one letter"),
        ((str(row.pk), "--csv", file, "--whole"), "JSON lines only"),
        ((str(row.pk), str(uuid4()), "--csv", file), "1 of 2 ids do not exist"),
    ):
        with pytest.raises(CommandError, match=told):
            run("dlq_export", *arguments)
    run("dlq_export", str(row.pk), "--jsonl", file)
    with pytest.raises(CommandError, match="exists already"):
        run("dlq_export", str(row.pk), "--jsonl", file)


def test_a_letter_whose_key_is_lost_is_exported_without_its_message_and_that_is_an_error(
    tmp_path, settings
) -> None:
    settings.DLQ = {"ENCRYPTION_KEYS": [Fernet.generate_key().decode()]}
    row = kept()
    settings.DLQ = {"ENCRYPTION_KEYS": [Fernet.generate_key().decode()]}
    file = tmp_path / "a.jsonl"

    with pytest.raises(CommandError, match="1 of them without their message"):
        run("dlq_export", "--all", "--whole", "--jsonl", str(file))

    assert str(row.pk) in json.loads(file.read_text())["payload_problem"]


def test_the_archive_is_within_reach_while_a_system_check_fails(settings, tmp_path) -> None:
    archived()
    settings.DLQ = {"INGEST_BATCH": 0, "RETENTION": {"discarded": "90 d"}}
    file = str(tmp_path / "a.jsonl")

    for name, *arguments in (
        ("dlq_export", "--all", "--whole", "--jsonl", file),
        ("dlq_import", file),
        ("dlq_prune",),
        ("dlq_restore", "--all"),
        ("dlq_purge", "--all", "--confirm", "0"),
    ):
        # As from a shell: call_command runs no checks.
        load_command_class("dlq", name).run_from_argv(["manage.py", name, *arguments])
