"""The migrations of dlq say what its models say."""

from __future__ import annotations

import pytest
from django.core.management import call_command


@pytest.mark.django_db
def test_no_migration_is_missing() -> None:
    call_command("makemigrations", "dlq", check=True, dry_run=True, verbosity=0)
