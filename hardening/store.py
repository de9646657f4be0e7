"""The port for small state that outlives a worker: documents with compare-and-set, and the store's clock.

The argument. A document changes only by `swap`, which names the version that its caller has read. The
store lets one of several callers through; the others read again. A version is a random number that
never comes back, so that a document that ended and began anew is not taken for the old one, and so
that a store can tell a swap that it is asked for twice, after a lost answer, from another's. Dying
between a read and a swap leaves the document as it was.

All times come from the store, since the clocks of workers differ.
"""

from __future__ import annotations

import inspect
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from math import isfinite
from random import random
from typing import Any, Protocol, TypeVar, runtime_checkable
from weakref import WeakKeyDictionary

from celery import Celery
from django.utils.module_loading import import_string

from .conf import HardeningSettings
from .core.errors import HardeningError
from .core.loading import load_backend
from .effective import transport_of

__all__ = [
    "ABSENT",
    "LARGEST_BYTES",
    "Entry",
    "StateStore",
    "StoreBusy",
    "StoreUnavailable",
    "checked_ttl",
    "chosen_store",
    "decoded",
    "encoded",
    "new_version",
    "update",
]

T = TypeVar("T")

ABSENT = 0
"""The version of a document that is not there. A new one is swapped in over it."""

LARGEST_BYTES = 65_536
_LONGEST_TTL_SECONDS = 100 * 365 * 86_400.0
_TRIES = 20
_FIRST_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.1
_TURN_PATIENCE_SECONDS = 2.0


class StoreUnavailable(HardeningError):
    """The store of shared state does not answer, or lacks its table; the text says what to do.

    A swap that ends so may have been done or not.
    """


class StoreBusy(StoreUnavailable):
    """The store answers, but others changed the same document each time; nothing was written."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What was read: the document, or None where there is none, its version, and the store's time."""

    value: dict[str, Any] | None
    version: int
    now: float
    """Seconds since 1970, by the store's clock."""


@runtime_checkable
class StateStore(Protocol):
    """Keeps JSON objects of at most 64 KB, each until its time to live is over.

    An implementation is constructed with its OPTIONS as keyword arguments, and with the Celery app as
    `app` where it takes one. Safe in threads, in greenlets and after a fork. Each call ends within
    seconds, and what it wrote stays, whatever becomes of a transaction that the caller is in. Raises
    StoreUnavailable when the store does not answer.
    """

    def read(self, key: str) -> Entry:
        """The document. Without one, or after its time: value None, version ABSENT.

        What others put in its place and is no document reads as None, with a version to swap it for.
        """
        ...

    def swap(self, key: str, *, version: int, value: Mapping[str, Any] | None, ttl_seconds: float) -> bool:
        """Put `value` in the place of the document; None deletes it. Its time to live begins anew.

        True only if the document still had that version (ABSENT: was not there). Raises ValueError for
        what is no JSON object, is larger than 64 KB, or for no positive time to live.
        """
        ...

    def close(self) -> None:
        """Leave no connection open: for a parent process that will fork. It may be used again."""
        ...


def update(
    store: StateStore,
    key: str,
    change: Callable[[dict[str, Any] | None, float], tuple[dict[str, Any] | None, T]],
    *,
    ttl_seconds: float,
) -> T:
    """Change a document as a function of what it is; returns the second part of what `change` answers.

    `change(document or None, the store's now)` answers (new document or None, result). It is called again
    when another was faster, so it must have no effects; what it is given is its own. Nothing is written,
    and the time to live goes on, when the document stays the same. Raises StoreBusy after 20 tries.
    """
    longest_pause = _FIRST_PAUSE_SECONDS
    with _turn(key):
        for _ in range(_TRIES):
            entry = store.read(key)
            value, result = change(deepcopy(entry.value), entry.now)
            if value == entry.value:
                return result
            if store.swap(key, version=entry.version, value=value, ttl_seconds=ttl_seconds):
                return result
            time.sleep(random() * longest_pause)
            longest_pause = min(_LONGEST_PAUSE_SECONDS, 2 * longest_pause)
    raise StoreBusy(f"the document {key!r} was changed by others at each of {_TRIES} tries; try again later")


def chosen_store(app: Celery, settings: HardeningSettings) -> StateStore:
    """The store of the settings, else the app's broker where it is Redis, else the database.

    One for each app and process. Raises BackendError; connects to nothing.
    """
    known = _chosen.get(app)
    if known is None or known[0] != settings.store:
        known = _chosen[app] = (settings.store, _load(app, settings.store))
    return known[1]


def encoded(value: Mapping[str, Any]) -> str:
    """A document as text, all ASCII. Raises ValueError for what is none."""
    if not isinstance(value, Mapping):
        raise ValueError(f"a document is a JSON object, not a {type(value).__name__}")
    try:
        text = json.dumps(dict(value), allow_nan=False, separators=(",", ":"))
    except (TypeError, RecursionError) as exc:
        raise ValueError(f"a document is a JSON object: {exc}") from exc
    if len(text) > LARGEST_BYTES:
        raise ValueError(f"a document has at most {LARGEST_BYTES} bytes, not {len(text)}")
    return text


def decoded(text: str | bytes | None) -> dict[str, Any] | None:
    """The document of a text; None for a text that is none."""
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def checked_ttl(seconds: float) -> float:
    """A time to live that every store can keep. Raises ValueError for none."""
    if not (isfinite(seconds) and seconds > 0):
        raise ValueError(f"a time to live is a positive number of seconds, not {seconds!r}")
    return min(float(seconds), _LONGEST_TTL_SECONDS)


def new_version() -> int:
    """A version that no document had: random, never ABSENT, and a big integer of every database."""
    # From the system's source: processes that were forked together must not draw the same numbers.
    return secrets.randbits(62) + 1


_chosen: WeakKeyDictionary[Celery, tuple[Mapping[str, Any] | None, StateStore]] = WeakKeyDictionary()


def _load(app: Celery, named: Mapping[str, Any] | None) -> StateStore:
    if named is None:
        on_redis = transport_of(app) == "redis"
        path = f"hardening.stores.{'redis.RedisStore' if on_redis else 'database.DatabaseStore'}"
        named = {"BACKEND": path}
    path, options = str(named.get("BACKEND", "")), dict(named.get("OPTIONS") or {})
    if "app" not in options and _takes_app(path):
        options["app"] = app
    store: StateStore = load_backend(StateStore, path, options)
    return store


def _takes_app(path: str) -> bool:
    try:
        return "app" in inspect.signature(import_string(path)).parameters
    # Whatever is wrong with it, load_backend says so.
    except Exception:
        return False


_turns: list[Any] = []


def _new_turns() -> None:
    _turns[:] = [threading.RLock() for _ in range(64)]


_new_turns()
os.register_at_fork(after_in_child=_new_turns)  # One that another thread held would never be let go.


@contextmanager
def _turn(key: str) -> Iterator[None]:
    """Changes of one document by one process queue up here and not at the store.

    A courtesy: hundreds of greenlets that compete for a document would mostly undo each other's reads.
    Who does not get a turn in time goes on without.
    """
    lock: Any = _turns[hash(key) % len(_turns)]
    mine = lock.acquire(timeout=_TURN_PATIENCE_SECONDS)
    try:
        yield
    finally:
        if mine:
            lock.release()
