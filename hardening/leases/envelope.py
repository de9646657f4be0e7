"""kombu's envelope of a message in a Redis list, as far as giving one back needs it."""

from __future__ import annotations

import json
import time
from typing import Any

from hardening.core.identity import RECOVERED_HEADER

__all__ = ["as_recovered", "as_redelivered", "named"]


def as_redelivered(message: bytes) -> bytes:
    """The message, marked as delivered before. What is no envelope stays as it is."""
    try:
        envelope: Any = json.loads(message)
        envelope["headers"]["redelivered"] = True
        envelope["properties"]["delivery_info"]["redelivered"] = True
        return json.dumps(envelope).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return message


def as_recovered(message: bytes, holder: str) -> bytes:
    """The same, and that it was taken now from a silent holder."""
    try:
        envelope: Any = json.loads(as_redelivered(message))
        headers = envelope["headers"]
        before = headers.get(RECOVERED_HEADER)
        times = before.get("times") if isinstance(before, dict) else 0
        times = times + 1 if isinstance(times, int) else 1
        headers[RECOVERED_HEADER] = {"holder": holder, "times": times, "at": round(time.time(), 3)}
        return json.dumps(envelope).encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return as_redelivered(message)


def named(message: bytes) -> tuple[str, str]:
    """The task and the id that a message names; empty where it names none."""
    try:
        headers = json.loads(message)["headers"]
        return str(headers.get("task") or ""), str(headers.get("id") or "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", ""
