"""Dead letters for tests: complete ones, with every field overridable."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from hardening.core.letter import Attempt, Canvas, DeadLetter, Payload

FAILED_AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def attempt(number: int = 1, **fields: Any) -> Attempt:
    """One failed attempt."""
    given: dict[str, Any] = {
        "number": number,
        "error_class": "shop.errors.CardDeclined",
        "message": f"declined at attempt {number}",
        "traceback": f"Traceback (most recent call last):\n  attempt {number}",
        "worker": "w1@host",
        "started_at": FAILED_AT,
        "failed_at": FAILED_AT,
    }
    return Attempt(**(given | fields))


def body_of(*args: Any, **kwargs: Any) -> bytes:
    """A protocol 2 body."""
    return json.dumps(
        [list(args), kwargs, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    ).encode()


def letter(*, body: bytes | None = None, headers: dict[str, Any] | None = None, **fields: Any) -> DeadLetter:
    """A letter of task shop.tasks.charge; a new delivery unless `task_id` is given."""
    task_id = fields.pop("task_id", None) or str(uuid4())
    task_name = fields.pop("task_name", "shop.tasks.charge")
    all_headers: dict[str, Any] = {
        "lang": "py",
        "task": task_name,
        "id": task_id,
        "root_id": task_id,
        "parent_id": None,
        "retries": 3,
        "eta": None,
        "expires": None,
        "group": None,
        "argsrepr": "(41, 'hunter22')",
        "kwargsrepr": "{'card_number': '4111111111111111'}",
        "origin": "gen1@host",
        **(headers or {}),
    }
    given: dict[str, Any] = {
        "delivery_key": task_id,
        "replay_number": 0,
        "task_id": task_id,
        "root_id": task_id,
        "task_name": task_name,
        "reason": "retries_exhausted",
        "attempts": (attempt(1), attempt(2)),
        "payload": Payload(
            body=body_of(41, "hunter22", card_number="4111111111111111") if body is None else body,
            content_type="application/json",
            content_encoding="utf-8",
            headers=all_headers,
            properties={"correlation_id": task_id, "reply_to": "reply-queue", "priority": 3},
        ),
        "failed_at": FAILED_AT,
        "routing_key": "payments",
        "queue": "payments",
        "priority": 3,
        "canvas": Canvas(chain=("shop.tasks.receipt",)),
        "argument_names": ("order_id", "password"),
        "worker": "w1@host",
        "release": "2026.3",
        "versions": {"celery": "5.7.0"},
    }
    return DeadLetter(**(given | fields))


def with_payload(record: DeadLetter, **fields: Any) -> DeadLetter:
    """The same letter with parts of its payload replaced."""
    return replace(record, payload=replace(record.payload, **fields))
