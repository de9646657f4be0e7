"""RedisStore: shared state in the Redis that is the broker, or in another one.

A document is one hash, {version, value}, with an expiry; a swap is one script. kombu says how the broker
is reached (Sentinel, TLS, fail-over, key prefix), and its connection is let go at once: what stays is a
pool of redis-py's, which is safe in threads and greenlets and begins anew after a fork.

A connection that broke may have taken its command along. The script takes a document that has the new
version already for its own work, so it is sent once more, over a new connection.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from typing import Any, TypeVar

from celery import Celery
from kombu.exceptions import KombuError
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from hardening.core.apps import celery_app
from hardening.core.errors import HardeningError
from hardening.store import ABSENT, Entry, StoreUnavailable, checked_ttl, decoded, encoded, new_version

__all__ = ["RedisStore"]

T = TypeVar("T")

# A primary that became a replica is one as well: the server to ask is another now.
_BROKEN = (RedisConnectionError, ReadOnlyError)
_TIMEOUT_SECONDS = 2.0
_MOST_CONNECTIONS = 16
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


class RedisStore:
    """Documents in Redis. Each call ends within seconds; a process has at most 16 connections."""

    def __init__(
        self, app: Celery | None = None, url: str | None = None, prefix: str = "hardening:state:"
    ) -> None:
        """`url` as redis-py takes it; without one the broker of `app`, which defaults to the project's.

        Keys begin with the `global_keyprefix` of the broker, if it has one, and `prefix`.
        """
        self._app = app
        self._url = url
        self._prefix = prefix
        self._link: _Link | None = None
        self._begin()

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

    def close(self) -> None:
        """Close the connections of this process."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._link = None
        self._opening = threading.Lock()
        self._failed_openings = 0
        self._slots = threading.BoundedSemaphore(_MOST_CONNECTIONS)

    def _ask(self, question: Callable[[_Link], T]) -> T:
        if self._pid != os.getpid():
            self._begin()  # A lock that another thread of the parent held would never be let go.
        try:
            with _held(self._slots, "all connections to it are in use"):
                try:
                    return self._once(question)
                except _BROKEN:
                    return self._once(question)
        except (RedisError, KombuError, HardeningError, OSError, ValueError) as exc:
            if isinstance(exc, StoreUnavailable):
                raise
            raise StoreUnavailable(self._why(exc)) from exc

    def _once(self, question: Callable[[_Link], T]) -> T:
        link = self._connected()
        try:
            return question(link)
        except (*_BROKEN, RedisTimeoutError, OSError):
            self._drop(link)
            raise

    def _connected(self) -> _Link:
        link = self._link
        if link is not None:
            return link
        failed_before = self._failed_openings
        with _held(self._opening, "it does not answer"):
            return self._link or self._first_link(failed_before)

    def _first_link(self, failed_before: int) -> _Link:
        if self._failed_openings != failed_before:
            # Hundreds of greenlets that wait here must not find out one after another.
            raise StoreUnavailable(self._why("a connection was just tried in vain"))
        try:
            self._link = link = self._open()
        except Exception:
            self._failed_openings += 1
            raise
        return link

    def _open(self) -> _Link:
        if self._url is not None:
            client = Redis.from_url(
                self._url,
                socket_timeout=_TIMEOUT_SECONDS,
                socket_connect_timeout=_TIMEOUT_SECONDS,
                retry=Retry(NoBackoff(), 0),
            )
            return _Link(client, self._prefix)
        return _link_to_broker(self._app or celery_app(), self._prefix)

    def _drop(self, link: _Link) -> None:
        if self._link is link:
            self._link = None
        link.close()

    def _why(self, exc: object) -> str:
        where = "of the setting" if self._url is not None else "that is the broker"
        told = f"{type(exc).__name__}: {exc}" if isinstance(exc, Exception) else exc
        return f"the Redis {where} keeps the shared state and cannot be used now: {told}"


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


def _link_to_broker(app: Celery, prefix: str) -> _Link:
    timeouts = {"socket_timeout": _TIMEOUT_SECONDS, "socket_connect_timeout": _TIMEOUT_SECONDS}
    given = app.conf.broker_transport_options or {}
    # redis-py would ask each Sentinel several times, seconds apart.
    sentinels = timeouts | {"retry": Retry(NoBackoff(), 0)} | (given.get("sentinel_kwargs") or {})
    connection: Any = app.connection(
        app.conf.broker_write_url or app.conf.broker_url,
        connect_timeout=int(_TIMEOUT_SECONDS),
        transport_options=timeouts
        | {"retry_on_timeout": False, "max_connections": 2 * _MOST_CONNECTIONS, "sentinel_kwargs": sentinels},
    )
    try:
        # Two tries at least, and each of the brokers that the project names.
        connection.ensure_connection(
            max_retries=max(1, len(connection.alt or ()) - 1), interval_start=0, timeout=_TIMEOUT_SECONDS
        )
        if connection.transport.driver_type != "redis":
            raise StoreUnavailable(
                f"the broker is {connection.transport.driver_type}, not Redis: set "
                'HARDENING["STORE"] to another store, or give RedisStore a url'
            )
        channel = connection.default_channel
        # A client of our own: kombu's adds the key prefix to some commands and not to others. The pool
        # outlives kombu's connection: it opens a socket whenever it has none.
        return _Link(Redis(connection_pool=channel.pool), f"{channel.global_keyprefix}{prefix}")
    finally:
        connection.release()


@contextmanager
def _held(lock: Any, otherwise: str) -> Iterator[None]:
    if not lock.acquire(timeout=_TIMEOUT_SECONDS):
        raise StoreUnavailable(f"the Redis of the shared state is not to be had: {otherwise}")
    try:
        yield
    finally:
        lock.release()
