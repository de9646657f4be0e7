"""The migrations of beat_leader say what its models say, and can be taken back."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connections

from tests.helpers.beat_stores import beat_database
from tests.helpers.dlq_databases import database_url


@pytest.mark.django_db
def test_no_migration_is_missing() -> None:
    call_command("makemigrations", "beat_leader", check=True, dry_run=True, verbosity=0)


def test_the_tables_come_and_go(request, tmp_path, django_db_blocker) -> None:
    url = database_url("sqlite", request, tmp_path)
    with django_db_blocker.unblock(), beat_database("beat_migrated", url) as alias:
        tables = connections[alias].introspection.table_names
        assert "beat_leader_tickrow" in tables()

        call_command("migrate", "beat_leader", "zero", database=alias, verbosity=0)

        assert not [table for table in tables() if table.startswith("beat_leader_")]
