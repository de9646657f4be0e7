"""Every implementation of the leader lock, on real servers, before the first term."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connections

from beat_leader.lock import LeaderLock
from beat_leader.locks.database import DatabaseLock
from beat_leader.locks.memory import MemoryLock
from beat_leader.locks.redis import RedisLock
from beat_leader.models import Lease

from .databases import database_from_url
from .dlq_databases import database_alias_for, database_url
from .state_stores import redis_app

__all__ = ["DATABASES", "KINDS", "REDIS", "SERVERS", "Locks", "leader_locks", "lease_table"]

SERVERS = ("postgres", "mariadb")
DATABASES = ("sqlite", *SERVERS)
REDIS = ("redis", "redis_prefixed", "redis_url")
KINDS = ("memory", *REDIS, *DATABASES)


class Locks:
    """Any number of locks that are the same one: each as another Beat would make it."""

    def __init__(self, kind: str, make: Callable[[], LeaderLock], forget: Callable[[], object]) -> None:
        self.kind = kind
        self.forget = forget
        """The store loses all that it knows of the lock."""

        self._make = make
        self._made: list[LeaderLock] = []

    def make(self) -> LeaderLock:
        lock = self._make()
        self._made.append(lock)
        return lock

    def close(self) -> None:
        for lock in self._made:
            lock.close()


@contextmanager
def leader_locks(kind: str, request: pytest.FixtureRequest, directory: Path) -> Iterator[Locks]:
    """Locks of this kind. Those in a database use the alias `beat`."""
    if kind in DATABASES:
        with lease_table("beat", database_url(kind, request, directory)):
            locks = Locks(kind, lambda: DatabaseLock("beat"), Lease.objects.using("beat").all().delete)
            yield locks
            locks.close()
        return
    locks = _in_memory() if kind == "memory" else _in_redis(kind, request.getfixturevalue("redis_url"))
    yield locks
    locks.close()


@contextmanager
def lease_table(alias: str, url: str) -> Iterator[None]:
    """An alias of the database, with the table, which is empty."""
    entry = database_from_url(url)
    if url.startswith("sqlite"):
        entry["OPTIONS"] = {"timeout": 20}
    with database_alias_for(alias, entry):
        with connections[alias].schema_editor() as editor:
            editor.create_model(Lease)
        try:
            yield
        finally:
            with connections[alias].schema_editor() as editor:
                editor.delete_model(Lease)


def _in_memory() -> Locks:
    lock = MemoryLock()
    return Locks("memory", lambda: lock, lambda: lock.__init__())  # type: ignore[misc]


def _in_redis(kind: str, url: str) -> Locks:
    import redis

    options = {"global_keyprefix": "shop:"} if kind == "redis_prefixed" else {}

    def forget() -> None:
        with redis.Redis.from_url(url) as client:
            client.flushall()

    make = (
        (lambda: RedisLock(url=url))
        if kind == "redis_url"
        else (lambda: RedisLock(redis_app(url, **options)))
    )
    return Locks(kind, make, forget)
