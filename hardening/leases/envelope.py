"""kombu's envelope of a message in a Redis list, as far as giving one back needs it."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["as_redelivered", "named"]


def as_redelivered(message: bytes) -> bytes:
    """The message, marked as delivered before. What is no envelope stays as it is."""
    try:
        envelope: Any = json.loads(message)
        envelope["headers"]["redelivered"] = True
        envelope["properties"]["delivery_info"]["redelivered"] = True
        return json.dumps(envelope).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return message


def named(message: bytes) -> tuple[str, str]:
    """The task and the id that a message names; empty where it names none."""
    try:
        headers = json.loads(message)["headers"]
        return str(headers.get("task") or ""), str(headers.get("id") or "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", ""
