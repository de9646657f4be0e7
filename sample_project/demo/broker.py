"""Which jobs the broker still holds: waiting in a queue, or handed to a worker and not acknowledged."""

from __future__ import annotations

import json
from typing import Any

from redis import Redis

from hardening.core.identity import BEAT_HEADER, KEY_HEADER


def held_keys(url: str) -> set[str]:
    """The delivery keys of all messages in this Redis database, but those that Beat sent.

    A message moves from a queue to the unacknowledged ones; a retry, or a message that is given back, moves
    the other way. It can be missed in mid-move: one look that finds nothing proves nothing.
    """
    keys: set[str] = set()
    # Not all that lies here is text; what is not is no message.
    with Redis.from_url(url, decode_responses=True, encoding_errors="replace") as client:
        for name in client.scan_iter("*"):
            keys.update(key for raw in _messages(client, name) if (key := _delivery_key(raw)))
    return keys


def _messages(client: Any, name: str) -> list[str]:
    match client.type(name):
        case "hash":
            return list(client.hvals(name))
        case "list":
            return list(client.lrange(name, 0, -1))
        case _:
            return []


def _delivery_key(raw: str) -> str | None:
    # A leased message stands behind a line that says who holds it.
    about, _, leased = raw.partition("\n")
    try:
        message = json.loads(leased or about)
        headers = (message[0] if isinstance(message, list) else message)["headers"]
        if BEAT_HEADER in headers:
            return None  # Another one every second: they are counted by due times.
        # A dead letter that waits for its store names its key in `letter`.
        key = headers.get(KEY_HEADER) or headers.get("letter") or headers.get("id")
        return str(key) if key else None
    except (ValueError, LookupError, TypeError, AttributeError):
        return None  # Not a message: counters and other records live in the same database.
