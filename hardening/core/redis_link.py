"""A link to a Redis: the one that is the broker, as kombu says how to reach it, or one of an own address.

kombu knows Sentinel, TLS, fail-over and the key prefix. Its connection is let go at once: what stays is a
pool of redis-py's, which is safe in threads and greenlets and begins anew after a fork. A server that
refuses or hangs is an error within seconds, for hundreds of greenlets as for one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from celery import Celery
from kombu.exceptions import KombuError
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from .apps import celery_app
from .errors import HardeningError

__all__ = ["Linked", "OnRedis", "impatient"]

T = TypeVar("T")

# A primary that became a replica is one as well: the server to ask is another now.
_BROKEN = (RedisConnectionError, ReadOnlyError)
_TIMEOUT_SECONDS = 2.0
_MOST_CONNECTIONS = 16


def impatient(sentinels: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options of clients of Sentinels: redis-py would ask each several times, seconds apart."""
    timeouts = {"socket_timeout": _TIMEOUT_SECONDS, "socket_connect_timeout": _TIMEOUT_SECONDS}
    return timeouts | {"retry": Retry(NoBackoff(), 0)} | dict(sentinels or {})


class Linked(Protocol):
    """What is open while a Redis is in use."""

    def close(self) -> None: ...


L = TypeVar("L", bound=Linked)


class OnRedis(Generic[L]):
    """Something kept in Redis. A subclass makes its link of a client and the global key prefix, and asks it.

    A question is asked once more, over a new connection, when the first one broke: it may have been
    answered, so it must be one that can be asked twice.
    """

    keeps = "what is shared"
    remedy = "give it a url, or keep this elsewhere"
    unavailable: type[HardeningError] = HardeningError
    """What is raised when it does not answer."""

    def __init__(self, app: Celery | None, url: str | None) -> None:
        """`url` as redis-py takes it; without one the broker of `app`, which defaults to the project's."""
        self._app = app
        self._url = url
        self._link: L | None = None
        self._begin()

    def _make_link(self, client: Redis, global_prefix: str) -> L:
        raise NotImplementedError

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

    def _ask(self, question: Callable[[L], T]) -> T:
        if self._pid != os.getpid():
            self._begin()  # A lock that another thread of the parent held would never be let go.
        try:
            with self._held(self._slots, "all connections to it are in use"):
                try:
                    return self._once(question)
                except _BROKEN:
                    return self._once(question)
        except (RedisError, KombuError, HardeningError, OSError, ValueError) as exc:
            if isinstance(exc, self.unavailable):
                raise
            raise self.unavailable(self._why(exc)) from exc

    def _once(self, question: Callable[[L], T]) -> T:
        link = self._connected()
        try:
            return question(link)
        except (*_BROKEN, RedisTimeoutError, OSError):
            self._drop(link)
            raise

    def _connected(self) -> L:
        link = self._link
        if link is not None:
            return link
        failed_before = self._failed_openings
        with self._held(self._opening, "it does not answer"):
            return self._link or self._first_link(failed_before)

    def _first_link(self, failed_before: int) -> L:
        if self._failed_openings != failed_before:
            # Hundreds of greenlets that wait here must not find out one after another.
            raise self.unavailable(self._why("a connection was just tried in vain"))
        try:
            self._link = link = self._open()
        except Exception:
            self._failed_openings += 1
            raise
        return link

    def _open(self) -> L:
        if self._url is not None:
            client = Redis.from_url(
                self._url,
                socket_timeout=_TIMEOUT_SECONDS,
                socket_connect_timeout=_TIMEOUT_SECONDS,
                retry=Retry(NoBackoff(), 0),
            )
            return self._make_link(client, "")
        return self._link_to_broker(self._app or celery_app())

    def _drop(self, link: L) -> None:
        if self._link is link:
            self._link = None
        link.close()

    def _why(self, exc: object) -> str:
        where = "of the setting" if self._url is not None else "that is the broker"
        told = f"{type(exc).__name__}: {exc}" if isinstance(exc, Exception) else exc
        return f"the Redis {where} keeps {self.keeps} and cannot be used now: {told}"

    def _link_to_broker(self, app: Celery) -> L:
        timeouts = {"socket_timeout": _TIMEOUT_SECONDS, "socket_connect_timeout": _TIMEOUT_SECONDS}
        given = app.conf.broker_transport_options or {}
        sentinels = impatient(given.get("sentinel_kwargs"))
        connection: Any = app.connection(
            app.conf.broker_write_url or app.conf.broker_url,
            connect_timeout=int(_TIMEOUT_SECONDS),
            transport_options=timeouts
            | {
                "retry_on_timeout": False,
                "max_connections": 2 * _MOST_CONNECTIONS,
                "sentinel_kwargs": sentinels,
            },
        )
        try:
            # Two tries at least, and each of the brokers that the project names.
            connection.ensure_connection(
                max_retries=max(1, len(connection.alt or ()) - 1), interval_start=0, timeout=_TIMEOUT_SECONDS
            )
            if connection.transport.driver_type != "redis":
                raise self.unavailable(
                    f"the broker is {connection.transport.driver_type}, not Redis: {self.remedy}"
                )
            channel = connection.default_channel
            # A client of our own: kombu's adds the key prefix to some commands and not to others. The pool
            # outlives kombu's connection: it opens a socket whenever it has none.
            return self._make_link(Redis(connection_pool=channel.pool), channel.global_keyprefix)
        finally:
            connection.release()

    @contextmanager
    def _held(self, lock: Any, otherwise: str) -> Iterator[None]:
        if not lock.acquire(timeout=_TIMEOUT_SECONDS):
            raise self.unavailable(f"the Redis is not to be had: {otherwise}")
        try:
            yield
        finally:
            lock.release()
