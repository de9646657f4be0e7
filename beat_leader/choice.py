"""Which lock, tick store and register are in force.

Those that the settings name, else those in Redis where it is the broker, else those in the database.
"""

from __future__ import annotations

import inspect
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from celery import Celery
from django.utils.module_loading import import_string

from hardening.core.loading import BackendError, load_backend

from .conf import beat_settings
from .lock import LeaderLock
from .register import Register
from .ticks import TickStore

__all__ = ["chosen_lock", "chosen_register", "chosen_ticks", "on_redis"]

T = TypeVar("T")

_made: WeakKeyDictionary[Celery, dict[str, Any]] = WeakKeyDictionary()


def chosen_lock(app: Celery) -> LeaderLock:
    """One for each app and process. Raises BackendError for one that cannot be used."""
    given = beat_settings().lock
    path = given.get("BACKEND") or (
        "beat_leader.locks.redis.RedisLock" if on_redis(app) else "beat_leader.locks.database.DatabaseLock"
    )
    return cast(LeaderLock, _of(app, LeaderLock, path, given.get("OPTIONS") or {}))


def chosen_ticks(app: Celery) -> TickStore:
    """One for each app and process. Raises BackendError."""
    return cast(TickStore, _stored(app, TickStore, "Ticks"))


def chosen_register(app: Celery) -> Register:
    """One for each app and process, in the same store as the ticks. Raises BackendError."""
    return cast(Register, _stored(app, Register, "Register"))


def on_redis(app: Celery) -> bool:
    """Whether the broker is a Redis, as its URL says; Sentinels are."""
    url: Any = app.conf.broker_write_url or app.conf.broker_url or ""
    first = url[0] if isinstance(url, (list, tuple)) and url else url
    return str(first).split("+")[0].split(":")[0] in ("redis", "rediss", "sentinel", "valkey", "valkeys")


def _stored(app: Celery, protocol: Any, name: str) -> Any:
    given = beat_settings().store
    module = given.get("BACKEND") or (
        "beat_leader.stores.redis" if on_redis(app) else "beat_leader.stores.database"
    )
    return _of(app, protocol, f"{module}.{name}", given.get("OPTIONS") or {})


def _of(app: Celery, protocol: Any, path: str, options: Any) -> Any:
    made = _made.setdefault(app, {})
    key = f"{path} {sorted(options.items())!r}"
    if key not in made:
        made[key] = load_backend(protocol, path, {**_with_app(path, app), **options})
    return made[key]


def _with_app(path: str, app: Celery) -> dict[str, Any]:
    try:
        parameters = inspect.signature(import_string(path)).parameters
    except (ImportError, TypeError, ValueError) as exc:
        raise BackendError(f"{path} cannot be loaded: {exc!r}") from exc
    return {"app": app} if "app" in parameters else {}
