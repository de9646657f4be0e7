"""GarbageList: the list of what was set aside, in the Redis that is the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery
from redis import Redis

from hardening.leases.store import GARBAGE
from hardening.stores.link import OnRedis

__all__ = ["GarbageList"]

_LOCK_MILLISECONDS = 30_000
_UNLOCK = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class GarbageList(OnRedis["_Link"]):
    """Its entries, oldest first; each call raises StoreUnavailable where Redis is not to be had."""

    keeps = "what was set aside as garbage"

    def __init__(self, app: Celery) -> None:
        super().__init__(app, None)

    def each(self, keep: Callable[[bytes], None], *, most: int, token: str) -> int:
        """Give up to `most` entries to `keep`, and remove each after it returned; how many it was."""
        if not self._ask(lambda link: link.length()) or not self._ask(lambda link: link.lock(token)):
            return 0
        taken = 0
        try:
            while taken < most and (entry := self._ask(lambda link: link.oldest())) is not None:
                keep(entry)
                self._remove(entry)
                taken += 1
        finally:
            self._ask(lambda link: link.unlock(token))
        return taken

    def _remove(self, entry: bytes) -> None:
        self._ask(lambda link: link.remove(entry))

    def _make_link(self, client: Redis, global_prefix: str) -> _Link:
        return _Link(client, f"{global_prefix}{GARBAGE}")


class _Link:
    def __init__(self, client: Redis, key: str) -> None:
        self._client: Any = client
        self._key = key
        self._lock = f"{key}.reader"

    def length(self) -> int:
        return int(self._client.llen(self._key))

    def lock(self, token: str) -> bool:
        return bool(self._client.set(self._lock, token, nx=True, px=_LOCK_MILLISECONDS))

    def unlock(self, token: str) -> None:
        self._client.eval(_UNLOCK, 1, self._lock, token)

    def oldest(self) -> bytes | None:
        found: bytes | None = self._client.lindex(self._key, -1)
        return found

    def remove(self, entry: bytes) -> None:
        self._client.lrem(self._key, -1, entry)

    def close(self) -> None:
        self._client.connection_pool.disconnect(inuse_connections=False)
