"""RedisStore: shared state in the Redis that is the broker, or in another one.

A document is one hash, {version, value}, with an expiry; a swap is one script.

A connection that broke may have taken its command along. The script takes a document that has the new
version already for its own work, so it is sent once more, over a new connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from celery import Celery
from redis import Redis

from hardening.store import ABSENT, Entry, checked_ttl, decoded, encoded, new_version

from .link import OnRedis

__all__ = ["RedisStore"]

_READ = """
local now = redis.call('TIME')
local found = redis.call('HMGET', KEYS[1], 'version', 'value')
return {now[1], now[2], found[1], found[2]}
"""
_SWAP = """
local version = redis.call('HGET', KEYS[1], 'version') or '0'
if version ~= ARGV[1] and version ~= ARGV[2] then return 0 end
if ARGV[3] == '' then
    redis.call('DEL', KEYS[1])
else
    redis.call('HSET', KEYS[1], 'version', ARGV[2], 'value', ARGV[3])
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
return 1
"""


class RedisStore(OnRedis["_Link"]):
    """Documents in Redis. Each call ends within seconds; a process has at most 16 connections."""

    def __init__(
        self, app: Celery | None = None, url: str | None = None, prefix: str = "hardening:state:"
    ) -> None:
        """`url` as redis-py takes it; without one the broker of `app`, which defaults to the project's.

        Keys begin with the `global_keyprefix` of the broker, if it has one, and `prefix`.
        """
        super().__init__(app, url)
        self._prefix = prefix

    def key_on_broker(self, key: str, global_prefix: str) -> str | None:
        """The key of a document where this store is the broker's own Redis; else None."""
        return f"{global_prefix}{self._prefix}{key}" if self._url is None else None

    def read(self, key: str) -> Entry:
        """The document, and the time of the server, in one round trip."""
        seconds, micros, version, text = self._ask(lambda link: link.read(key))
        now = int(seconds) + int(micros) / 1e6
        if version is None:
            return Entry(None, ABSENT, now)
        return Entry(decoded(text), int(version), now)

    def swap(self, key: str, *, version: int, value: Mapping[str, Any] | None, ttl_seconds: float) -> bool:
        """Put a document in the place of the one with that version, in one round trip."""
        text = "" if value is None else encoded(value)
        milliseconds = ceil(checked_ttl(ttl_seconds) * 1000)
        arguments = (version, new_version(), text, milliseconds)
        return bool(self._ask(lambda link: link.swap(key, *arguments)))

    def _make_link(self, client: Redis, global_prefix: str) -> _Link:
        return _Link(client, f"{global_prefix}{self._prefix}")


class _Link:
    """A pool of connections, and the two scripts."""

    def __init__(self, client: Redis, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._read = client.register_script(_READ)
        self._swap = client.register_script(_SWAP)

    def read(self, key: str) -> Any:
        return self._read(keys=[self._key(key)])

    def swap(self, key: str, *arguments: Any) -> Any:
        return self._swap(keys=[self._key(key)], args=arguments)

    def close(self) -> None:
        # Those in use by other threads end with their commands.
        self._client.connection_pool.disconnect(inuse_connections=False)

    def _key(self, key: str) -> bytes:
        return f"{self._prefix}{key}".encode("utf-8", "surrogatepass")
