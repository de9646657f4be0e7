"""What a replay publishes: the stored message with a new identity, its body untouched. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from hardening.core.identity import (
    ATTEMPTS_HEADER,
    DELAYED_HEADER,
    DEPENDENCY_HEADER,
    DUE_HEADER,
    FIRST_HEADER,
    KEY_HEADER,
    LETTER_HEADER,
    MOVED_HEADER,
    OFFERS_HEADER,
    PARKED_HEADER,
    RECOVERED_HEADER,
    REPLAY_HEADER,
    SUSPECT_HEADER,
    TWIN_HEADER,
)
from hardening.core.letter import COMPRESSED, Payload
from hardening.core.letter import DeadLetter as LetterRecord

from .errors import NoDestination, NotRepaired
from .text import whole_number

__all__ = [
    "Destination",
    "Repair",
    "ReplayMessage",
    "destination_of",
    "headers_for_replay",
    "properties_for_replay",
    "repaired",
]

_COMPRESSION = "compression"
# Of the life that ended: when it began, how often and at what it failed, who died of it and where it was
# tried then, where it was dead-lettered.
_LEFT_BEHIND = frozenset(
    {
        *(ATTEMPTS_HEADER, DELAYED_HEADER, DUE_HEADER, FIRST_HEADER, DEPENDENCY_HEADER, PARKED_HEADER),
        *(MOVED_HEADER, OFFERS_HEADER, RECOVERED_HEADER, SUSPECT_HEADER, TWIN_HEADER),
        *(_COMPRESSION, "redelivered", "x-delivery-count", "x-acquired-count"),
    }
)
# What AMQP has room for.
_MOST_PRIORITY = 255
_LEFT_BEHIND_FAMILIES = ("x-death", "x-first-death", "x-last-death")


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where to publish, and the queue that must exist for it."""

    exchange: str
    routing_key: str
    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayMessage:
    """Everything that a publish needs."""

    task_id: str
    body: bytes
    content_type: str | None
    content_encoding: str | None
    headers: Mapping[str, Any]
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What is sent instead of what was kept. None: as it was."""

    body: bytes | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    headers: Mapping[str, Any] | None = None


def repaired(letter: LetterRecord, repair: Repair) -> LetterRecord:
    """The letter with its repaired message. Its identity stays: it is the same work. Raises NotRepaired.

    A repaired body is taken as it stands: it is not compressed.
    """
    kept = letter.payload
    payload = replace(
        kept,
        body=kept.body if repair.body is None else repair.body,
        content_type=repair.content_type or kept.content_type,
        content_encoding=repair.content_encoding or kept.content_encoding,
        headers=kept.headers if repair.headers is None else repair.headers,
        properties=kept.properties if repair.body is None else {**kept.properties, COMPRESSED: False},
    )
    if not _is_compressed(payload) and payload.content_type == "application/json":
        try:
            json.loads(payload.body)
        except (ValueError, RecursionError) as exc:
            raise NotRepaired(f"the repaired body is no JSON: {exc}") from exc
    return replace(letter, payload=payload)


def headers_for_replay(letter: LetterRecord, *, letter_id: UUID, task_id: str) -> dict[str, Any]:
    """The headers as they were, except for identity, retries, times and traces of earlier deaths."""
    left_behind = _LEFT_BEHIND - {_COMPRESSION} if _is_compressed(letter.payload) else _LEFT_BEHIND
    headers = {
        name: value
        for name, value in letter.payload.headers.items()
        if name not in left_behind and not name.startswith(_LEFT_BEHIND_FAMILIES)
    }
    # A message of protocol 1 has these in its body, and a header `task` would turn it into protocol 2.
    if "task" in headers:
        headers |= {"id": task_id, "retries": 0, "eta": None, "expires": None}
    headers[KEY_HEADER] = letter.delivery_key
    headers[REPLAY_HEADER] = (whole_number(letter.replay_number) or 0) + 1
    headers[LETTER_HEADER] = str(letter_id)
    return headers


def _is_compressed(payload: Payload) -> bool:
    """Whether its body is still what its header `compression` says: nobody could decompress it."""
    return payload.properties.get(COMPRESSED) is True and _COMPRESSION in payload.headers


def properties_for_replay(letter: LetterRecord, *, task_id: str) -> dict[str, Any]:
    """correlation_id is the new id; reply_to and priority stay; nothing that expires."""
    properties: dict[str, Any] = {"correlation_id": task_id}
    reply_to = letter.payload.properties.get("reply_to")
    if reply_to:
        properties["reply_to"] = str(reply_to)
    priority = whole_number(
        letter.priority if letter.priority is not None else letter.payload.properties.get("priority")
    )
    if priority is not None and 0 <= priority <= _MOST_PRIORITY:
        properties["priority"] = priority
    return properties


def destination_of(
    letter: LetterRecord, *, queue: str | None, is_fanout: Callable[[str], bool] = lambda _queue: False
) -> Destination:
    """The queue asked for, else where the message came from. Raises NoDestination.

    A message of a fan-out exchange goes back to its one queue: the other queues had copies of their
    own, which have not failed here.
    """
    if queue:
        return Destination(exchange="", routing_key=queue, queue=queue)
    if letter.exchange and not (letter.queue and is_fanout(letter.queue)):
        return Destination(exchange=letter.exchange, routing_key=letter.routing_key, queue=letter.queue)
    name = letter.queue if letter.exchange else letter.routing_key or letter.queue
    # Unreadable entries come from the queue of letters itself and have no other.
    if not name or (not letter.routing_key and not letter.payload.headers):
        raise NoDestination("the letter does not say which queue its message came from: name a queue")
    return Destination(exchange="", routing_key=name, queue=name)
