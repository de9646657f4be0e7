"""The port for delayed tasks: parked under an id, released when due, listed, cancelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from celery import Celery

from hardening.core.loading import load_backend
from hardening.effective import transport_of

from .entry import Cancelled, Delayed, Fate
from .rules import DelayedRules

__all__ = [
    "CANCELLED_SECONDS",
    "CLAIM_SECONDS",
    "MOST_RECORDS",
    "POSTPONED_SECONDS",
    "RELEASED_SECONDS",
    "DelayedStore",
    "Publish",
    "Turn",
    "chosen_delayed_store",
]

RELEASED_SECONDS = 7_200.0
"""How long it is known that a message was released: its old copy may come back when a worker died."""

CANCELLED_SECONDS = 7 * 86_400.0
MOST_RECORDS = 100_000
"""Of either kind; the oldest go first."""

CLAIM_SECONDS = 30.0
POSTPONED_SECONDS = 10.0
"""When a message that the broker refused is tried again."""

Publish = Callable[[Sequence[Delayed]], Sequence[str]]
"""Publishes messages in their order; returns the ids of those that the broker has. Raises for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one turn of releasing did."""

    released: int = 0
    postponed: int = 0
    next_in: float | None = None
    """Seconds until the next message is due, where that is known; 0 where more are due now."""


@runtime_checkable
class DelayedStore(Protocol):
    """Keeps delayed messages until they are due by the store's clock.

    An implementation is constructed with its OPTIONS as keyword arguments, and with the Celery app as `app`
    where it takes one. Each call ends within seconds. Raises StoreUnavailable when the store does not
    answer; what was asked may have been done then.
    """

    def begin(self) -> None:
        """This process is a worker, whose calls follow each other: a connection may stay open for them."""
        ...

    def pause(self) -> None:
        """Nothing is asked for a while: close what stays open for speed. Only that of this thread."""
        ...

    def park(self, entry: Delayed) -> Fate:
        """Keep a message for good. PARKED: it is kept, now or since before. Else nothing was done."""
        ...

    def fate(self, entry_id: str) -> Fate:
        """What became of a message."""
        ...

    def release(self, publish: Publish, *, limit: int) -> Turn:
        """Send up to `limit` messages that are due, in the order of due time and, at the same, of parking.

        Of several workers one sends a message. `publish` is not used by a store that shares the broker's
        Redis.
        """
        ...

    def cancel(self, entry_id: str, *, by: str) -> tuple[Delayed, Cancelled] | None:
        """Take a message off for good, and remember it. None: it is not here, or was released first."""
        ...

    def count(self) -> int:
        """How many are parked."""
        ...

    def page(self, *, offset: int, limit: int) -> list[Delayed]:
        """Some of them, without their messages, in the order in which they are released."""
        ...

    def find(self, key: str) -> list[Delayed]:
        """At most 100, without their messages, whose task id, or own id, is `key`."""
        ...

    def cancellations(self, *, limit: int) -> list[Cancelled]:
        """The latest first."""
        ...

    def close(self) -> None:
        """Leave no connection open: for a parent process that will fork. It may be used again."""
        ...


def chosen_delayed_store(app: Celery, rules: DelayedRules) -> DelayedStore:
    """The store of the settings, else the app's broker where it is Redis, else the database.

    One for each app and process. Raises BackendError; connects to nothing.
    """
    known = _chosen.get(app)
    if known is None or known[0] != rules.store:
        known = _chosen[app] = (rules.store, _load(app, rules.store))
    return known[1]


_chosen: WeakKeyDictionary[Celery, tuple[Mapping[str, Any] | None, DelayedStore]] = WeakKeyDictionary()


def _load(app: Celery, named: Mapping[str, Any] | None) -> DelayedStore:
    from hardening.store import _takes_app  # It asks a class the same question.

    if named is None:
        kind = "redis.RedisDelayedStore" if transport_of(app) == "redis" else "database.DatabaseDelayedStore"
        named = {"BACKEND": f"hardening.delayed.stores.{kind}"}
    path, options = str(named.get("BACKEND", "")), dict(named.get("OPTIONS") or {})
    if "app" not in options and _takes_app(path):
        options["app"] = app
    store: DelayedStore = load_backend(DelayedStore, path, options)
    return store
