"""What RabbitMQ tells of a message's death: the newest entry of `x-death` that is one. Pure.

The header lists where a message was dead-lettered, newest first, one entry for each queue and reason.
Celery's native delay moves a message through queues that dead-letter it on purpose, `celery_delayed_27` to
`celery_delayed_0`: these hops are no deaths, and the bits in front of its routing key are theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hardening.core.reasons import Reason

__all__ = ["Death", "death_of"]

_DELAY = re.compile(r"(?:.+_)?celery_delayed_(?:\d{1,2}|delivery)")
_DELAY_BITS = re.compile(r"^(?:[01]\.){28}")

_REASONS = {
    "delivery_limit": Reason.DELIVERY_LIMIT,
    "delivery-limit": Reason.DELIVERY_LIMIT,
    "expired": Reason.EXPIRED,
    "rejected": Reason.BROKER_REJECTED,
    "maxlen": Reason.BROKER_DROPPED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """Where a message died, why, and how it had come there."""

    reason: Reason
    queue: str
    exchange: str
    """The exchange that it was published to. "" for the default one, and where it is not known."""

    routing_key: str
    said: str
    """The broker's word for the reason."""


def death_of(headers: object) -> Death | None:
    """The death that brought a message to its dead-letter queue; None where its headers tell of none.

    A reason that no known RabbitMQ gives is taken for `broker_rejected`.
    """
    if not isinstance(headers, Mapping):
        return None
    entries = headers.get("x-death")
    for entry in entries if isinstance(entries, (list, tuple)) else ():
        queue = _text(entry.get("queue")) if isinstance(entry, Mapping) else ""
        if queue and not _DELAY.fullmatch(queue):
            keys = entry.get("routing-keys")
            key = keys[0] if isinstance(keys, (list, tuple)) and keys else ""
            return _death(queue, entry.get("reason"), entry.get("exchange"), key)
    # RabbitMQ 4 keeps these beside the list, for who has no use for tables; the last first.
    for which in ("last", "first"):
        queue = _text(headers.get(f"x-{which}-death-queue"))
        if queue and not _DELAY.fullmatch(queue):
            return _death(
                queue,
                headers.get(f"x-{which}-death-reason"),
                headers.get(f"x-{which}-death-exchange"),
                "",
            )
    return None


def _death(queue: str, reason: Any, exchange: Any, routing_key: Any) -> Death:
    said, came_by = _text(reason), _text(exchange)
    return Death(
        reason=_REASONS.get(said, Reason.BROKER_REJECTED),
        queue=queue,
        exchange="" if _DELAY.fullmatch(came_by) else came_by,
        routing_key=_DELAY_BITS.sub("", _text(routing_key), count=1) or queue,
        said=said or "unknown",
    )


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""
