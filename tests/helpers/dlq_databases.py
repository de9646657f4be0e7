"""Real databases for dead letters, each under an alias of its own, added while the tests run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connections

from tests.helpers.databases import database_from_url

KINDS = ("sqlite", "postgres", "mariadb")
_TABLES = (
    *("dlq_sendingpace", "dlq_operationevent", "dlq_operationmessage", "dlq_operationitem", "dlq_operation"),
    *("dlq_groupfacet", "dlq_grouphour", "dlq_lettergroup", "dlq_attempt", "dlq_deadletter"),
    *("dlq_seenrelease", "dlq_turn"),
)
_migrated: set[tuple[str, str, str]] = set()
_files: dict[str, bytes] = {}
"""By app the content of a SQLite file with its tables."""


@contextmanager
def letters_in(kind: str, request: pytest.FixtureRequest, directory: Path) -> Iterator[str]:
    """An empty database of this kind with dlq's tables; yields its alias, which DLQ["DATABASE"] names."""
    url = database_url(kind, request, directory)
    alias = f"dlq_{kind}"
    entry = database_from_url(url)
    if kind == "sqlite":
        entry["OPTIONS"] = {"timeout": 20}
    with database_alias_for(alias, entry):
        if not made_with_tables("dlq", alias, url):
            for table in _TABLES:
                with connections[alias].cursor() as cursor:
                    cursor.execute(f"DELETE FROM {table}")
        yield alias


def made_with_tables(app: str, alias: str, url: str) -> bool:
    """Give the database of this alias the app's tables; False: it has them already, and what is in them.

    They are migrated once for a server, and once for SQLite: each of its files is new and becomes a copy.
    """
    file = Path(settings.DATABASES[alias]["NAME"]) if url.startswith("sqlite:") else None
    if file is not None and app in _files:
        file.write_bytes(_files[app])
        return True
    if (app, alias, url) in _migrated:
        return False
    call_command("migrate", app, database=alias, verbosity=0)
    if file is None:
        _migrated.add((app, alias, url))
    else:
        connections[alias].close()
        _files[app] = file.read_bytes()
    return True


@contextmanager
def database_alias_for(alias: str, entry: dict[str, Any]) -> Iterator[None]:
    """Add an entry to DATABASES of the running process for a while."""
    settings.DATABASES[alias] = entry
    connections.configure_settings(settings.DATABASES)
    try:
        yield
    finally:
        connections[alias].close()
        del connections[alias]
        del settings.DATABASES[alias]


def database_url(kind: str, request: pytest.FixtureRequest, directory: Path) -> str:
    """The URL of a database of this kind; of a server it is the run's one database."""
    if kind == "sqlite":
        return f"sqlite:///{directory / 'letters.sqlite3'}"
    if kind == "mariadb":
        # The alias of MySQL's driver in Django is mysqlclient, whose version PyMySQL must claim.
        import pymysql

        pymysql.version_info = (2, 2, 8, "final", 0)
        pymysql.install_as_MySQLdb()
    url: str = request.getfixturevalue(f"{kind}_server").url
    return url
