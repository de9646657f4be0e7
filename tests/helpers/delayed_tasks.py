"""Delayed tasks in the store of a project's app."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from celery import Celery

from hardening.conf import load_settings
from hardening.delayed.entry import Delayed, Fate
from hardening.delayed.store import DelayedStore, chosen_delayed_store
from hardening.testing.servers import RabbitMQServer

MEMORY = {"DELAYED": {"STORE": {"BACKEND": "hardening.delayed.stores.memory.MemoryDelayedStore"}}}
BROKEN = {
    "DELAYED": {
        "STORE": {
            "BACKEND": "hardening.delayed.stores.database.DatabaseDelayedStore",
            "OPTIONS": {"database": "no_such_database"},
        }
    }
}


def delayed_store_of(app: Celery) -> DelayedStore:
    return chosen_delayed_store(app, load_settings()[0].delayed_rules)


def delay(store: DelayedStore, task_id: str, *, seconds: float = 3600.0, **more: Any) -> Delayed:
    """Park a message."""
    values: dict[str, Any] = {
        "id": uuid4().hex,
        "task_id": task_id,
        "task": "shop.charge",
        "queue": "payments",
        "due": time.time() + seconds,
        **more,
    }
    entry = Delayed(**values)
    assert store.park(entry) is Fate.PARKED
    return entry


def vhost_of(url: str) -> str:
    return url.rpartition("/")[2]


def limit_queue(server: RabbitMQServer, vhost: str, queue: str, most: int) -> None:
    """From now on the queue refuses what is published into it beyond so many."""
    policy = f'{{"max-length": {most}, "overflow": "reject-publish"}}'
    server.rabbitmqctl("set_policy", "-p", vhost, "full", f"^{queue}$", policy, "--apply-to", "queues")
