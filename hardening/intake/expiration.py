"""Keeps RabbitMQ from dropping an expired task unseen: its message carries `expires`, and no time to live.

Celery sends `expires` twice, as a header that the worker reads and as the TTL of the message, by which the
broker drops it without a word: no result, no letter, and a chord that waits for ever. Without the TTL the
message stays in its queue until a worker sees that it is too late, which ends it as it should.

The price: what nobody consumes stays in its queue when it has expired. A producer that is not hardened still
sends the TTL; see `dead_lettered` for what becomes of that.
"""

from __future__ import annotations

from typing import Any

from celery.signals import before_task_publish

__all__ = ["keep_expired", "without_ttl"]


def keep_expired() -> None:
    """From now on this process sends its tasks without a TTL. For one whose app is on RabbitMQ."""
    before_task_publish.connect(without_ttl, weak=False, dispatch_uid="hardening.expiration")


def without_ttl(headers: object = None, properties: object = None, **_: Any) -> None:
    """Receives before_task_publish. A TTL without `expires` is the project's own, and stays."""
    if isinstance(headers, dict) and isinstance(properties, dict) and headers.get("expires"):
        properties.pop("expiration", None)
