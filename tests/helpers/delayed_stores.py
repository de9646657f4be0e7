"""Every store of delayed tasks, on real servers, empty; and what it hands to the broker."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

from hardening.delayed.entry import Delayed
from hardening.delayed.store import DelayedStore, Turn
from hardening.delayed.stores.database import DatabaseDelayedStore
from hardening.delayed.stores.memory import MemoryDelayedStore
from hardening.delayed.stores.redis import RedisDelayedStore
from hardening.models import DelayedTask

from .dlq_databases import database_url
from .state_stores import DATABASES, redis_app, state_database

REDIS = ("redis", "redis_prefixed")
KINDS = ("memory", *REDIS, *DATABASES)
QUEUE = "shop"


@dataclass
class Harness:
    """A store, and what left it."""

    store: DelayedStore
    client: Any = None
    prefix: str = ""
    published: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    def publish(self, entries: Sequence[Delayed]) -> Sequence[str]:
        sent = [entry for entry in entries if entry.id not in self.refused]
        self.published += [json.loads(entry.message)["name"] for entry in sent]
        return [entry.id for entry in sent]

    def release(self, limit: int = 100) -> Turn:
        return self.store.release(self.publish, limit=limit)

    def released(self) -> list[str]:
        """The names of the messages that the broker has, in the order in which workers get them."""
        if self.client is None:
            return self.published
        items = self.client.lrange(f"{self.prefix}{QUEUE}", 0, -1)
        return [json.loads(item)["name"] for item in reversed(items)]


@contextmanager
def delayed_store(kind: str, request: pytest.FixtureRequest, directory: Path) -> Iterator[Harness]:
    """A store of this kind without messages."""
    if kind in DATABASES:
        with state_database(kind, database_url(kind, request, directory)) as alias:
            DelayedTask.objects.using(alias).all().delete()
            yield Harness(DatabaseDelayedStore(alias))
        return
    if kind == "memory":
        yield Harness(MemoryDelayedStore())
        return
    url = request.getfixturevalue("redis_url")
    prefix = "acme:" if kind == "redis_prefixed" else ""
    store = RedisDelayedStore(redis_app(url, **({"global_keyprefix": prefix} if prefix else {})))
    with redis.Redis.from_url(url) as client:
        yield Harness(store, client, prefix)
    store.close()


def message(name: str) -> str:
    return json.dumps({"name": name})
