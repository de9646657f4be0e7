"""How the lock and the stores of Beat reach their Redis: scripts over one pool, keys below one prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from celery import Celery
from redis import Redis

from hardening.core.redis_link import OnRedis

__all__ = ["PREFIX", "OnBeatsRedis", "Scripts"]

PREFIX = "hardening:beat:"


class Scripts:
    """A pool of connections, and the scripts."""

    def __init__(self, client: Redis, prefix: str, texts: Mapping[str, str]) -> None:
        self.client = client
        self.prefix = prefix
        self._scripts = {name: client.register_script(text) for name, text in texts.items()}

    def run(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """`keys` are parts of keys, below the prefix."""
        return self._scripts[script](keys=[f"{self.prefix}{key}" for key in keys], args=arguments)

    def close(self) -> None:
        """Those in use by other threads end with their commands."""
        self.client.connection_pool.disconnect(inuse_connections=False)


class OnBeatsRedis(OnRedis[Scripts]):
    """Something of Beat's in the Redis that is the broker, or in another one."""

    scripts: ClassVar[Mapping[str, str]]

    def __init__(self, app: Celery | None = None, url: str | None = None, prefix: str = PREFIX) -> None:
        """`url` as redis-py takes it; without one the broker of `app`, which defaults to the project's.

        Keys begin with the `global_keyprefix` of the broker, if it has one, and `prefix`.
        """
        super().__init__(app, url)
        self._prefix = prefix

    def _make_link(self, client: Redis, global_prefix: str) -> Scripts:
        return Scripts(client, f"{global_prefix}{self._prefix}", self.scripts)
