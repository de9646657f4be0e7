"""Reception's step: parks what is due later than the horizon, and recognises old copies of what was parked.

Only messages with a time are looked at, and only those beyond the horizon, or delivered before, cost a
question to the store. A message without a usable time, that is too late, or revoked, is Celery's.

What the store has released is due, whatever the clock of this worker says: Celery would put it on a timer
once more, which forgets the order of what is due at the same time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime
from typing import Any

from kombu.utils.json import dumps

from hardening.conf import load_settings
from hardening.core.errors import HardeningError
from hardening.core.identity import DELAYED_HEADER
from hardening.effective import transport_of
from hardening.history import attempt_number
from hardening.reception import Arrival
from hardening.store import StoreUnavailable

from .due import due_of, has_expired
from .entry import Delayed, Fate, delayed_id, dump_message, is_released, mark_due, shown
from .origin import LIST_KEY, Origin, origin_of
from .rules import DelayedRules
from .saying import Seldom
from .store import DelayedStore, chosen_delayed_store

__all__ = ["Parking", "body_of", "entry_for", "prepare"]

logger = logging.getLogger("hardening")

TRANSPORTS = ("redis", "amqp")
_REST_SECONDS = 5.0
"""How long a store that did not answer is left alone: each question may hold up the worker's loop."""


def prepare(consumer: Any) -> Parking | None:
    """The step of a worker; None where the broker is of another kind, or the store cannot be made."""
    app = consumer.app
    if transport_of(app) not in TRANSPORTS:
        return None
    rules = load_settings()[0].delayed_rules
    try:
        store = chosen_delayed_store(app, rules)
        store.begin()
        return Parking(consumer, store, rules)
    except HardeningError as exc:
        logger.warning("delayed tasks wait in the worker's memory: %s", exc)
        return None


class Parking:
    """Parks messages in the main loop of one worker. Holds nothing of them."""

    def __init__(
        self,
        consumer: Any,
        store: DelayedStore,
        rules: DelayedRules,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._app = consumer.app
        self._consumer = consumer
        self._store = store
        self._horizon = rules.horizon
        self._clock = clock
        self._resting_until = 0.0
        self._complaint = Seldom(logger)

    def concerns(self, message: Any) -> bool:
        """Whether it has a time at all."""
        return bool(message.headers.get("eta"))

    def take(self, arrival: Arrival) -> bool:
        """Park it, then acknowledge it."""
        message, headers = arrival.message, arrival.message.headers
        now = self._clock()
        due = due_of(headers["eta"], self._app)
        if due is None:
            return False
        is_far = due - now > self._horizon
        was_delivered = bool((message.delivery_info or {}).get("redelivered"))
        if not (is_far or was_delivered or DELAYED_HEADER in headers) or self._is_celerys(message, now):
            return False
        try:
            fate = self._fate(arrival, due, is_far=is_far, was_delivered=was_delivered)
        # StoreUnavailable, or the broker where it was asked for the queue: Celery's way is always open.
        except Exception as exc:
            self._rest(exc)
            return False
        if fate is Fate.UNKNOWN or fate is Fate.DUE or (fate is Fate.RELEASED and not was_delivered):
            return False
        self._say(fate, arrival.task.name, headers["id"], due, is_far)
        arrival.acknowledge()
        return True

    def _is_celerys(self, message: Any, now: float) -> bool:
        task_id = message.headers.get("id")
        return (
            not task_id
            or task_id in self._consumer.controller.state.revoked
            or bool(message.errors)
            or has_expired(message.headers.get("expires"), self._app, now)
        )

    def _fate(self, arrival: Arrival, due: float, *, is_far: bool, was_delivered: bool) -> Fate:
        """What became of it; parks it where it is far away and unknown."""
        message, headers = arrival.message, arrival.message.headers
        origin = origin_of(message, self._consumer)
        if origin is None:
            return Fate.UNKNOWN
        body = body_of(message)
        where = origin.list_key or origin.queue
        own_id = delayed_id(headers, task_id=str(headers["id"]), queue=where, body=body)
        if is_released(headers, own_id):
            mark_due(message)
            return Fate.UNKNOWN
        if not (is_far or was_delivered) or time.monotonic() < self._resting_until:
            return Fate.UNKNOWN
        if is_far:
            return self._store.park(entry_for(message, arrival.task.name, due, own_id, origin, body))
        return self._store.fate(own_id)

    def _rest(self, exc: Exception) -> None:
        self._resting_until = time.monotonic() + _REST_SECONDS
        if not isinstance(exc, StoreUnavailable):
            logger.error("a delayed task could not be parked", exc_info=exc)
        self._complaint.warn(
            "delayed tasks wait in the worker's memory, as long as they cannot be parked: %s", exc
        )

    def _say(self, fate: Fate, task: str, task_id: object, due: float, is_far: bool) -> None:
        about = {"task_id": task_id, "task_name": task, "event": "delayed"}
        if fate is Fate.PARKED and is_far:
            logger.info("task %s[%s] is parked until %s", task, task_id, _moment(due), extra=about)
            return
        logger.info(
            "an old copy of task %s[%s] is acknowledged: it was %s", task, task_id, fate.value, extra=about
        )


def entry_for(message: Any, task: str, due: float, own_id: str, origin: Origin, body: bytes) -> Delayed:
    """A message as it is parked under `own_id`."""
    headers = message.headers
    if origin.list_key:
        text = _envelope(message._raw, own_id)
    else:
        text = dump_message(message, body=body, own_id=own_id)
    return Delayed(
        id=own_id,
        task_id=shown(headers.get("id")),
        task=shown(task),
        queue=shown(origin.queue),
        due=due,
        attempt=min(attempt_number(headers.get("retries")), 2**31 - 1),
        list_key=origin.list_key,
        message=text,
    )


def _envelope(raw: Any, own_id: str) -> str:
    """The message as it lay in its list, with the mark of its release."""
    raw = copy(raw)
    raw["headers"] = {**(raw.get("headers") or {}), DELAYED_HEADER: own_id}
    properties = raw["properties"] = dict(raw["properties"])
    info = properties.get("delivery_info") or {}
    properties["delivery_info"] = {name: value for name, value in info.items() if name != LIST_KEY}
    return str(dumps(raw))


def body_of(message: Any) -> bytes:
    """The bytes of a message's body."""
    body = message.body
    if isinstance(body, str):
        encoding = message.content_encoding
        return body.encode(encoding if encoding and encoding != "binary" else "utf-8")
    return bytes(body or b"")


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f} s after 1970"
