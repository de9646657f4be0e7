"""A parked message: what the store keeps of it, its id, and what is published when it is due. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from hashlib import sha256
from typing import Any

from hardening.core.identity import DELAYED_HEADER, identity_of

__all__ = [
    "Cancelled",
    "Delayed",
    "Fate",
    "Outgoing",
    "delayed_id",
    "dump_message",
    "is_due",
    "is_released",
    "load_message",
    "mark_due",
    "shown",
]

_MOST_SHOWN = 200
# Told by the broker about one delivery, or undone by it: they would grow, or lie.
_LEFT_BEHIND = frozenset({"compression", "x-delivery-count", "x-acquired-count"})
_LEFT_BEHIND_FAMILIES = ("x-death", "x-first-death", "x-last-death")
# What a producer says of a message besides its headers. Not "expiration": it counts the time in a queue, and
# the header "expires" says when the task is too late. Not "user_id": it must be that of who publishes.
_PROPERTIES = ("priority", "correlation_id", "reply_to", "message_id", "timestamp", "type", "app_id")


class Fate(Enum):
    """What a store knows of an id."""

    UNKNOWN = "unknown"
    PARKED = "parked"
    RELEASED = "released"
    CANCELLED = "cancelled"
    DUE = "due"
    """By the store's clock there is nothing to wait for: it was not parked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delayed:
    """One parked message as it is listed. `message` is left out of lists."""

    id: str
    task_id: str
    task: str
    queue: str
    due: float
    """Seconds since 1970."""

    attempt: int = 1
    parked_at: float = 0.0
    """By the store's clock."""

    list_key: str = ""
    """The Redis list that it goes to, without the global key prefix. "": it is published over AMQP."""

    message: str = field(default="", repr=False)
    """The kombu envelope as it goes into a Redis list, or what `dump_message` made of an AMQP message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """The record of a cancellation."""

    id: str
    task_id: str
    task: str
    queue: str
    due: float
    at: float
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """What is published over AMQP."""

    body: bytes
    content_type: str | None
    content_encoding: str | None
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    queue: str
    exchange: str
    routing_key: str


def delayed_id(headers: Mapping[str, Any], *, task_id: str, queue: str, body: bytes) -> str:
    """Equal for copies of one message, and for nothing else.

    With the body, since nothing keeps a producer from sending two works under one id; with the time, since
    a wait in stages sends one attempt several times; with the queue, since a broadcast comes to several.
    """
    who = identity_of(headers, task_id)
    parts = (
        task_id,
        queue,
        who.delivery_key,
        who.replay_number,
        headers.get("retries"),
        headers.get("eta"),
        sha256(body).hexdigest(),
    )
    return sha256(json.dumps(parts, default=str).encode()).hexdigest()[:32]


def is_released(headers: Mapping[str, Any], own_id: str) -> bool:
    """Whether a message was released by the store: others may have inherited the header."""
    return headers.get(DELAYED_HEADER) == own_id


def mark_due(message: Any) -> None:
    """Note on a message, in this process, that it was released and has nothing to wait for."""
    message.hardening_due = True


def is_due(message: Any) -> bool:
    """Whether `mark_due` was called for it."""
    return bool(getattr(message, "hardening_due", False))


def dump_message(message: Any, *, body: bytes, own_id: str) -> str:
    """An AMQP message as text, with the mark of its release."""
    headers = {
        name: value
        for name, value in (message.headers or {}).items()
        if name not in _LEFT_BEHIND and not name.startswith(_LEFT_BEHIND_FAMILIES)
    }
    given = message.properties or {}
    info = message.delivery_info or {}
    return json.dumps(
        {
            "body": base64.b64encode(body).decode(),
            "content_type": message.content_type,
            "content_encoding": message.content_encoding,
            "headers": _packed({**headers, DELAYED_HEADER: own_id}),
            "properties": _packed({name: given[name] for name in _PROPERTIES if given.get(name) is not None}),
            "exchange": info.get("exchange") or "",
            "routing_key": info.get("routing_key") or "",
        }
    )


def load_message(text: str, *, queue: str) -> Outgoing:
    """What `dump_message` was given."""
    data = json.loads(text)
    return Outgoing(
        body=base64.b64decode(data["body"]),
        content_type=data["content_type"],
        content_encoding=data["content_encoding"],
        headers=_unpacked(data["headers"]),
        properties=_unpacked(data["properties"]),
        queue=queue,
        exchange=data["exchange"],
        routing_key=data["routing_key"],
    )


def shown(value: object, most: int = _MOST_SHOWN) -> str:
    """A text of any producer's as every store and page takes it."""
    text = str(value if value is not None else "")
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")[:most]


def _packed(value: Any) -> Any:
    """AMQP's tables hold what JSON has no word for."""
    if isinstance(value, Mapping):
        return {"d": {str(key): _packed(each) for key, each in value.items()}}
    if isinstance(value, (list, tuple)):
        return [_packed(each) for each in value]
    if isinstance(value, datetime):
        return {"t": value.isoformat()}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"b": base64.b64encode(bytes(value)).decode()}
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return {"s": str(value)}  # Decimal, which py-amqp writes as it reads it.


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(each) for each in value]
    if not isinstance(value, dict):
        return value
    [(kind, held)] = value.items()
    if kind == "d":
        return {key: _unpacked(each) for key, each in held.items()}
    if kind == "t":
        return datetime.fromisoformat(held)
    if kind == "b":
        return base64.b64decode(held)
    from decimal import Decimal

    return Decimal(held)
