"""The port for revokes that are remembered, and which store of them an app has.

A port of its own, and no documents of `hardening.store`: 50,000 ids are more than a document holds, and a
worker asks every few seconds for what is new, not for all. It lies beside the documents, in the same
Redis or the same database.

A store is a log of the last word on each revoke: revoked or forgotten, when, and until when it is
remembered. That a revoke was forgotten is remembered as well, so that a worker that has missed it learns
of it. All times are the store's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from celery import Celery

from hardening.conf import HardeningSettings, load_settings
from hardening.effective import transport_of
from hardening.store import chosen_store

from .rules import Revoke

__all__ = ["Changes", "Mark", "RevokedStore", "chosen_revoked"]


@dataclass(frozen=True, slots=True)
class Mark:
    """One revoke in the store. Times are seconds since 1970, by the store's clock."""

    revoke: Revoke
    at: float
    until: float


@dataclass(frozen=True, slots=True)
class Changes:
    """What a store knows; with a `since`, only what it has been told from then on."""

    now: float
    revoked: tuple[Mark, ...]
    forgotten: tuple[Revoke, ...]


@runtime_checkable
class RevokedStore(Protocol):
    """Remembers revokes. Safe in threads, in greenlets and after a fork; each call may be made twice.

    Raises StoreUnavailable when it does not answer; a write may then have been done or not.
    """

    def add(self, revokes: Sequence[Revoke], *, ttl_seconds: float, most: int) -> int:
        """Remember them from now on. Returns how many others it forgot for their sake, to keep `most`."""
        ...

    def forget(self, revokes: Sequence[Revoke], *, ttl_seconds: float) -> tuple[Revoke, ...]:
        """Take them back. Returns those that were revoked. That they are forgotten is remembered."""
        ...

    def changes(self, since: float | None = None) -> Changes:
        """What it was told from `since` on, in one call; without it everything that has not expired."""
        ...


def chosen_revoked(app: Celery) -> RevokedStore:
    """Beside the app's shared state; for a store of the project's own, the broker where it is Redis, else
    the database. One for each app and process. Raises BackendError; connects to nothing."""
    settings = load_settings()[0]
    known = _chosen.get(app)
    if known is None or known[0] != settings.store:
        known = _chosen[app] = (settings.store, _beside(app, settings))
    return known[1]


_chosen: WeakKeyDictionary[Celery, tuple[Mapping[str, Any] | None, RevokedStore]] = WeakKeyDictionary()


def _beside(app: Celery, settings: HardeningSettings) -> RevokedStore:
    # Late, all of them: a project without Redis has no redis-py, and models come with Django.
    state = chosen_store(app, settings)
    path = f"{type(state).__module__}.{type(state).__qualname__}"
    options = dict((settings.store or {}).get("OPTIONS") or {})
    if path == "hardening.stores.memory.MemoryStore":
        from .stores.memory import MemoryRevoked

        return MemoryRevoked(**options)
    own = path not in ("hardening.stores.redis.RedisStore", "hardening.stores.database.DatabaseStore")
    if path == "hardening.stores.redis.RedisStore" or (own and transport_of(app) == "redis"):
        from .stores.redis import RedisRevoked

        return RedisRevoked(app, url=None if own else options.get("url"))
    from .stores.database import DatabaseRevoked

    return DatabaseRevoked(None if own else options.get("database"))
