"""The migrations of hardening say what its models say, and can be taken back."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connections

from tests.helpers.dlq_databases import database_url
from tests.helpers.state_stores import DATABASES, state_database


@pytest.mark.django_db
def test_no_migration_is_missing() -> None:
    call_command("makemigrations", "hardening", check=True, dry_run=True, verbosity=0)


@pytest.mark.parametrize("kind", DATABASES)
def test_the_table_comes_goes_and_comes_again(kind, request, tmp_path, django_db_blocker) -> None:
    with django_db_blocker.unblock(), state_database(kind, database_url(kind, request, tmp_path)) as alias:
        tables = connections[alias].introspection.table_names
        assert "hardening_state" in tables()

        call_command("migrate", "hardening", "zero", database=alias, verbosity=0)
        assert "hardening_state" not in tables()

        call_command("migrate", "hardening", database=alias, verbosity=0)
        assert "hardening_state" in tables()
