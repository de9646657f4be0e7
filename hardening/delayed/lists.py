"""The lists of the Redis that is the broker, for delayed tasks that are kept elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from celery import Celery
from redis import Redis

from hardening.stores.link import OnRedis

from .entry import Delayed

__all__ = ["Lists"]


class Lists(OnRedis["_Link"]):
    """Pushes messages as they are into the lists that they came from."""

    keeps = "the queues"

    def __init__(self, app: Celery) -> None:
        super().__init__(app, None)

    def push(self, entries: Sequence[Delayed]) -> None:
        self._ask(lambda link: link.push(entries))

    def _make_link(self, client: Redis, global_prefix: str) -> _Link:
        return _Link(client, global_prefix)


class _Link:
    def __init__(self, client: Redis, prefix: str) -> None:
        self._client: Any = client
        self._prefix = prefix

    def push(self, entries: Sequence[Delayed]) -> None:
        with self._client.pipeline(transaction=True) as pipe:
            for entry in entries:
                pipe.lpush(f"{self._prefix}{entry.list_key}", entry.message)
            pipe.execute()

    def close(self) -> None:
        self._client.connection_pool.disconnect(inuse_connections=False)
