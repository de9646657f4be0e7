"""Every tick store and register, on real servers, empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from django.core.management import call_command
from django.db import connections

from beat_leader.models import BeatSign, BeatTerm, CursorRow, Fence, Refusal, TickRow
from beat_leader.stores import database, memory, redis

from .databases import database_from_url
from .dlq_databases import database_alias_for, database_url

DATABASES = ("sqlite", "postgres", "mariadb")
KINDS = ("memory", "redis", *DATABASES)

_TABLES: tuple[Any, ...] = (BeatSign, BeatTerm, CursorRow, Fence, Refusal, TickRow)
_migrated: set[str] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """`other` makes another tick store on the same place, as another process has it."""

    kind: str
    ticks: Any
    register: Any
    other: Callable[[], Any]
    alias: str = ""

    def close(self) -> None:
        self.ticks.close()
        self.register.close()


@contextmanager
def beat_stores(kind: str, request: pytest.FixtureRequest, directory: Path) -> Iterator[Stores]:
    """Those of this kind, without rows."""
    if kind in DATABASES:
        with beat_database(f"beat_{kind}", database_url(kind, request, directory)) as alias:
            stores = of_database(alias)
            yield stores
            stores.close()
        return
    if kind == "memory":
        ticks = memory.Ticks()
        yield Stores(kind=kind, ticks=ticks, register=memory.Register(), other=lambda: ticks)
        return
    stores = of_redis(request.getfixturevalue("redis_url"))
    yield stores
    stores.close()


def of_database(alias: str) -> Stores:
    return Stores(
        kind="database",
        ticks=database.Ticks(alias),
        register=database.Register(alias),
        other=lambda: database.Ticks(alias),
        alias=alias,
    )


def of_redis(url: str) -> Stores:
    """By way of the broker of an app, which has a key prefix."""
    app = Celery("beating", broker=url, set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": "shop:"}
    return Stores(
        kind="redis", ticks=redis.Ticks(app), register=redis.Register(app), other=lambda: redis.Ticks(app)
    )


@contextmanager
def beat_database(alias: str, url: str) -> Iterator[str]:
    """The alias of a database with empty tables of beat_leader."""
    entry = database_from_url(url)
    if entry["ENGINE"].endswith("sqlite3"):
        entry["OPTIONS"] = {"timeout": 20, "init_command": "PRAGMA synchronous=OFF"}
    with database_alias_for(alias, entry):
        if url not in _migrated:
            call_command("migrate", "beat_leader", database=alias, verbosity=0)
            _migrated.add(url)
        for model in _TABLES:
            model.objects.using(alias).all().delete()
        if entry["ENGINE"].endswith("sqlite3"):
            connections[alias].cursor().execute("PRAGMA journal_mode=WAL")
        yield alias
