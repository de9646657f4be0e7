"""Messages that never become a task: their letters hold a message and no traceback."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from celery import Celery

from .values import Values

__all__ = ["ODD", "Odd", "send_odd"]

_TASK = "shop.tasks.orders.ship"
_OTHER = "shop.tasks.payments.charge"
_GOOD = json.dumps([[1], {}, {}])


@dataclass(frozen=True)
class Odd:
    """`body` may hold %s, which becomes some word."""

    label: str
    task: str = _TASK
    body: str = _GOOD
    headers: Mapping[str, Any] = field(default_factory=dict)
    content_type: str = "application/json"
    count: int = 3


ODD = (
    Odd("orders.ship/undecodable", body='[[1], {"a": "%s', count=5),
    Odd("payments.charge/undecodable", task=_OTHER, body="<%s>"),
    Odd("orders.ship/content refused", body="%s", content_type="application/x-python-serialize"),
    Odd("orders.ship/two parts", body='[["%s"], {}]', count=4),
    Odd("orders.ship/kwargs are a list", body='[[1], ["%s"], {}]'),
    Odd("orders.ship/args are a text", body='["%s", {}, {}]'),
    Odd("orders.ship/bad eta", headers={"eta": "soon"}, count=2),
    Odd("payments.charge/bad expires", task=_OTHER, headers={"expires": "later"}, count=2),
)


def send_odd(app: Celery, odd: Odd, task_id: str, values: Values) -> None:
    """Publish one to the queue of the tasks."""
    body = odd.body.replace("%s", f"{values.word()}-{values.number()}").encode()
    with app.producer_pool.acquire(block=True) as producer:
        producer.publish(
            body,
            content_type=odd.content_type,
            content_encoding="binary",
            headers={"lang": "py", "task": odd.task, "id": task_id, "retries": 0, **odd.headers},
            exchange="",
            routing_key="celery",
            delivery_mode=2,
        )
