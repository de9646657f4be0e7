"""Every implementation of the store of shared state, on real servers, empty."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from django.core.management import call_command
from django.db import connections

from hardening.models import State
from hardening.store import StateStore
from hardening.stores.database import DatabaseStore
from hardening.stores.memory import MemoryStore
from hardening.stores.redis import RedisStore

from .databases import database_from_url
from .dlq_databases import database_alias_for, database_url, made_with_tables

DATABASES = ("sqlite", "postgres", "mariadb")
REDIS = ("redis", "redis_prefixed", "redis_url")
KINDS = ("memory", *REDIS, *DATABASES)


def redis_app(url: str, **transport_options: Any) -> Celery:
    """A Celery app whose broker is this Redis."""
    app = Celery("stateful", broker=url, set_as_current=False)
    app.conf.broker_transport_options = transport_options
    return app


@contextmanager
def state_store(kind: str, request: pytest.FixtureRequest, directory: Path) -> Iterator[StateStore]:
    """A store of this kind without documents. That of a database has the alias `state_<kind>`."""
    if kind in DATABASES:
        with state_database(kind, database_url(kind, request, directory)) as alias:
            yield DatabaseStore(alias)
        return
    store: StateStore
    if kind == "memory":
        store = MemoryStore()
    elif kind == "redis_url":
        store = RedisStore(url=request.getfixturevalue("redis_url"))
    else:
        options = {"global_keyprefix": "shop:"} if kind == "redis_prefixed" else {}
        store = RedisStore(redis_app(request.getfixturevalue("redis_url"), **options))
    yield store
    store.close()


@contextmanager
def state_database(kind: str, url: str) -> Iterator[str]:
    """The alias of a database with an empty table of shared state; another `kind` is a server's own."""
    alias = f"state_{kind}"
    entry = database_from_url(url)
    if kind == "sqlite":
        entry["OPTIONS"] = {"timeout": 20}
    with database_alias_for(alias, entry):
        if kind in DATABASES:
            made_with_tables("hardening", alias, url)
        else:
            call_command("migrate", "hardening", database=alias, verbosity=0)
        State.objects.using(alias).all().delete()
        if kind == "sqlite":
            # Else a caller that has read in a transaction keeps all others from committing.
            connections[alias].cursor().execute("PRAGMA journal_mode=WAL")
        yield alias
