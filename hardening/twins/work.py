"""Which work a message is: the same for all its copies, and for no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from hardening.core.identity import REPLAY_HEADER, TWIN_HEADER, identity_of, publish_of

__all__ = ["Work", "may_have_twin", "task_id_of"]


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one delivery key and replay number, at one of its attempts.

    With its publish and its body, because nothing keeps a producer from sending two works under one id, and
    a success of one must not refuse the other. A retry with other arguments is another work, and runs.
    """

    digest: str
    task_id: str
    attempt: int
    publish: str = ""
    """The publish, where its message or Redis tells it: retries carry it on."""

    @classmethod
    def of(cls, message: Any) -> Work:
        """Read it from what any producer may have sent."""
        headers = message.headers or {}
        task_id = task_id_of(message)
        identity = identity_of(headers, task_id)
        body = message.body
        publish = _publish(message, headers, task_id)
        named = f"{identity.replay_number} {identity.delivery_key}\0{publish}\0"
        hashed = sha256(named.encode("utf-8", "replace"))
        hashed.update(_bytes_of(body))
        retries = headers.get("retries")
        return cls(hashed.hexdigest(), task_id, retries if isinstance(retries, int) else 0, publish)


def task_id_of(message: Any) -> str:
    """The id of a message's task: in its headers, or with protocol 1 in its body. Else a name for its body,
    for two messages that tell none have nothing to do with each other. Never raises."""
    headers = message.headers
    found = headers.get("id") if isinstance(headers, Mapping) else None
    if found is None:
        try:
            payload = message.payload  # Decoded once.
        # A decoder may raise anything about what somebody sent.
        except Exception:
            payload = None
        found = payload.get("id") if isinstance(payload, Mapping) else None
    if isinstance(found, (str, int)):
        try:
            return str(found)
        except ValueError:  # An integer of too many digits.
            pass
    return f"body {sha256(_bytes_of(message.body)).hexdigest()}"


def _bytes_of(body: Any) -> bytes:
    return body if isinstance(body, bytes) else str(body).encode("utf-8", "surrogatepass")


def _publish(message: Any, headers: Any, task_id: str) -> str:
    if REPLAY_HEADER in headers:
        return ""  # Its id names the letter and the replay: published twice, it is the same work.
    carried = headers.get(TWIN_HEADER)
    if isinstance(carried, str) and carried:
        return carried
    told = (message.delivery_info or {}).get("published")  # By our transport on Redis.
    return publish_of(headers, task_id) or (told if isinstance(told, str) else "")


def may_have_twin(message: Any) -> bool:
    """Whether another copy may be at work, or have been: asked about every message."""
    headers = message.headers
    return bool(
        message.delivery_info.get("redelivered")
        or headers.get("redelivered")  # Of kombu's Redis transport. Retries carry it on.
        or REPLAY_HEADER in headers
        or TWIN_HEADER in headers
    )
