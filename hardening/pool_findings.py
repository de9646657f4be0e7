"""What a worker's pool cannot do: green threads on unpatched sockets, and time limits that nobody keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from celery import Celery

from .core.findings import Finding, Level
from .retries.options import is_celerys_own

__all__ = ["is_patched", "pool_findings"]

_LIMITS = ("time_limit", "soft_time_limit")

_NOT_KEPT: Mapping[str, tuple[str, ...]] = {
    "gevent": ("soft_time_limit",),
    "eventlet": ("soft_time_limit",),
    "threads": _LIMITS,
    "solo": _LIMITS,
}
"""The limits that Celery takes for a pool, and then forgets."""

_LOOKS: Mapping[str, tuple[str, str]] = {
    "gevent": ("gevent.monkey", "is_module_patched"),
    "eventlet": ("eventlet.patcher", "is_monkey_patched"),
}

_CALLED = {"thread": "threads"}  # Its module; the command line says "threads".


def pool_findings(app: Celery, pool: str, *, patched: Callable[[str], bool] | None = None) -> list[Finding]:
    """Findings about a worker that is about to start on `pool`, named as its module or as Celery names it.

    `patched`: whether the sockets of this process are those of a green pool. None: a look at them.
    """
    pool = _CALLED.get(pool, pool)
    return [*_unpatched(pool, patched or is_patched), *_limits(app, pool)]


def is_patched(pool: str) -> bool:
    """Whether the sockets of this process let other greenlets of this pool run. True on other pools."""
    module, look = _LOOKS.get(pool, ("", ""))
    if not module:
        return True
    try:
        found = getattr(import_module(module), look)
    except ImportError:
        return True  # Not installed: Celery says so.
    return bool(found("socket"))


def _unpatched(pool: str, patched: Callable[[str], bool]) -> list[Finding]:
    if patched(pool):
        return []
    return [
        Finding(
            code="CH027",
            level=Level.ERROR,
            what=f"the pool is {pool} and its sockets are not patched: each task that waits stops all others",
            where="the worker's command line, worker_pool or CELERY_WORKER_POOL",
            remedy=f"Start it with `-P {pool}`, in two words, or `--pool {pool}`: Celery looks for these "
            "before it imports anything. Remove worker_pool and CELERY_WORKER_POOL.",
        )
    ]


def _limits(app: Celery, pool: str) -> list[Finding]:
    forgotten = _NOT_KEPT.get(pool, ())
    said = [f"task_{name}" for name in forgotten if app.conf.get(f"task_{name}") is not None]
    said += sorted(
        f"{name}.{limit}"
        for name, task in app.tasks.items()
        for limit in forgotten
        if not is_celerys_own(task) and getattr(task, limit) is not None and f"task_{limit}" not in said
    )
    if not said:
        return []
    return [
        Finding(
            code="CH028",
            level=Level.WARNING,
            what=f"the pool {pool} does not keep these limits, so that a task may hang: {', '.join(said)}",
            where=f"a worker on {pool}",
            remedy="Set time_limit in place of soft_time_limit."
            if "time_limit" not in forgotten
            else "Run these tasks on prefork, or give what they wait for a time-out of its own.",
        )
    ]
