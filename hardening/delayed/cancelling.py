"""Cancels delayed tasks for an operator, and tells those who wait for a result.

The store decides between a cancellation and a release. Only then the result is written: dying in between
leaves a task that never runs, on record, and whose result stays pending.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery import Celery
from celery.app.task import Context

from hardening.conf import load_settings
from hardening.store import StoreUnavailable

from .entry import Cancelled, Delayed, load_message, shown
from .store import chosen_delayed_store

__all__ = ["Cancellation", "cancel_delayed", "found_delayed"]

logger = logging.getLogger("hardening")

REASON = "cancelled before it was due"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """What became of the ids that an operator named."""

    cancelled: tuple[Cancelled, ...] = ()
    missing: tuple[str, ...] = ()
    """Neither a task id nor an own id of anything that is parked: never was, or released, or cancelled."""

    untold: str = ""
    """Why the results of some stay pending; "" where all were written."""

    problem: str = ""
    """Why the store was asked no further; "" where it answered to all."""


def found_delayed(app: Celery, key: str) -> list[Delayed]:
    """The parked messages of a task id, or the one with that id of its own."""
    return chosen_delayed_store(app, load_settings()[0].delayed_rules).find(shown(key))


def cancel_delayed(app: Celery, keys: Sequence[str], *, by: str) -> Cancellation:
    """Cancel everything parked under these task ids or own ids. A store that goes away ends it half-way."""
    store = chosen_delayed_store(app, load_settings()[0].delayed_rules)
    cancelled: list[Cancelled] = []
    missing: list[str] = []
    untold = problem = ""
    for key in keys:
        gone: list[tuple[Delayed, Cancelled]] = []
        try:
            for each in store.find(shown(key)):
                if (done := store.cancel(each.id, by=shown(by))) is not None:
                    gone.append(done)  # noqa: PERF401 - it stays done when the next one fails
        except StoreUnavailable as exc:
            problem = str(exc)
        if not gone and not problem:
            missing.append(key)
        for entry, record in gone:
            cancelled.append(record)
            logger.warning(
                "task %s[%s] is cancelled before it was due (%s)",
                entry.task,
                entry.task_id,
                by,
                extra={"task_id": entry.task_id, "task_name": entry.task, "event": "cancelled"},
            )
            # A backend that is down is waited for once, not for each of them.
            untold = untold or _tell(app, entry)
        if problem:
            break
    return Cancellation(cancelled=tuple(cancelled), missing=tuple(missing), untold=untold, problem=problem)


def _tell(app: Celery, entry: Delayed) -> str:
    """Write the result REVOKED, as a revoke does; why not, if not."""
    try:
        headers, body = _read(entry)
        backend: Any = app.backend
        backend.mark_as_revoked(
            entry.task_id,
            REASON,
            request=Context({**headers, **_canvas(body)}),
            store_result=not headers.get("ignore_result"),
        )
    # Whatever the backend has: the task is cancelled.
    except Exception as exc:
        logger.warning("the result of task %s[%s] stays pending", entry.task, entry.task_id, exc_info=True)
        return f"{type(exc).__name__}: {exc}"
    return ""


def _read(entry: Delayed) -> tuple[Mapping[str, Any], bytes]:
    if not entry.message:
        return {"id": entry.task_id, "task": entry.task}, b""
    if not entry.list_key:
        outgoing = load_message(entry.message, queue=entry.queue)
        return outgoing.headers, outgoing.body
    from base64 import b64decode

    raw = json.loads(entry.message)
    body = raw.get("body") or ""
    encoded = (raw.get("properties") or {}).get("body_encoding") == "base64"
    return raw.get("headers") or {}, b64decode(body) if encoded else str(body).encode()


def _canvas(body: bytes) -> Mapping[str, Any]:
    """The chord that waits for the task, where the body is JSON and says so."""
    try:
        chord = json.loads(body)[2].get("chord")
    # Another serialiser, or compressed: a chord stays without this part then, as it does for a lost message.
    except Exception:
        return {}
    return {"chord": chord} if chord else {}
