"""The migrations of dlq say what its models say, and keep the letters that were there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from dlq.cli import full, full_text
from dlq.groups.duty import tend
from dlq.models import Attempt, DeadLetter, LetterGroup
from dlq.rows import attempt_rows, letter_row
from dlq.sink import DatabaseSink
from tests.helpers.dlq_databases import KINDS, letters_in
from tests.helpers.dlq_letters import FAILED_AT, letter

NEWER = {"verdict", "rule", "fingerprint", "group_id", "imported_from", "live_digest"}


@pytest.fixture(params=KINDS)
def alias(request, tmp_path, settings, django_db_blocker) -> Iterator[str]:
    with django_db_blocker.unblock(), letters_in(request.param, request, tmp_path) as name:
        settings.DLQ = {"DATABASE": name}
        try:
            yield name
        finally:
            migrated(name, "0004_chord_reruns")


def migrated(alias: str, name: str) -> Any:
    """The models as they were then, over tables as they were then."""
    executor = MigrationExecutor(connections[alias])
    executor.migrate([("dlq", name)])
    return executor.loader.project_state([("dlq", name)]).apps


def kept_by(apps: Any, alias: str) -> Any:
    """The letter and its attempts, written with the columns that these models have."""
    record = letter(task_id=str(uuid4()))
    row = letter_row(record, keys=(), now=FAILED_AT)
    apps.get_model("dlq", "DeadLetter").objects.using(alias).create(**_columns(row))
    for attempt in attempt_rows(record.attempts, letter_id=row.pk):
        apps.get_model("dlq", "Attempt").objects.using(alias).create(**_columns(attempt))
    return row.pk


def _columns(row: DeadLetter | Attempt) -> dict[str, Any]:
    names = {field.attname for field in row._meta.concrete_fields} - NEWER
    return {name: getattr(row, name) for name in names if (name, getattr(row, name)) != ("id", None)}


@pytest.mark.django_db
def test_no_migration_is_missing() -> None:
    call_command("makemigrations", "dlq", check=True, dry_run=True, verbosity=0)


def test_letters_from_before_verdicts_stay_whole_with_empty_ones(alias) -> None:
    pk = kept_by(migrated(alias, "0001_initial"), alias)

    migrated(alias, "0003_groups_and_operations")

    row = DeadLetter.objects.get(pk=pk)
    assert (row.verdict, row.rule, row.error_class) == ("", "", "shop.errors.CardDeclined")
    assert [(a.number, a.verdict, a.rule, a.judgement) for a in row.attempts.all()] == [
        (2, "", "", ""),
        (1, "", "", ""),
    ]
    assert row.record().payload.body
    assert "attempt 2: shop.errors.CardDeclined" in full_text(full(row))


def test_letters_from_before_groups_get_their_fingerprint_and_are_counted(alias) -> None:
    pk = kept_by(migrated(alias, "0002_verdicts"), alias)
    migrated(alias, "0003_groups_and_operations")
    assert DeadLetter.objects.get(pk=pk).fingerprint == ""

    assert tend(by_hand=True).letters == 1

    row = DeadLetter.objects.get(pk=pk)
    assert row.fingerprint == letter_row(letter(), keys=(), now=FAILED_AT).fingerprint
    assert (row.group_id, LetterGroup.objects.get().letters) == (row.fingerprint, 1)


def test_a_worker_of_the_version_before_still_keeps_letters_in_the_new_tables(alias) -> None:
    old = MigrationExecutor(connections[alias]).loader.project_state([("dlq", "0001_initial")]).apps

    pk = kept_by(old, alias)

    row = DeadLetter.objects.get(pk=pk)
    assert (row.verdict, row.rule, row.fingerprint, row.group_id) == ("", "", "", None)
    assert set(row.attempts.values_list("verdict", "rule")) == {("", "")}


def test_the_way_back_keeps_the_letters(alias) -> None:
    DatabaseSink().keep(letter())

    old = migrated(alias, "0001_initial")

    assert old.get_model("dlq", "DeadLetter").objects.using(alias).get().attempts.count() == 2
