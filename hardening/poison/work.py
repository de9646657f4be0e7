"""Which work a start belongs to: one delivery key and replay number, over task ids, retries and copies."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from hardening.core.identity import (
    KEY_HEADER,
    REPLAY_HEADER,
    SUSPECT_HEADER,
    Identity,
    identity_of,
)
from hardening.twins.work import Work, may_have_twin, task_id_of

__all__ = [
    "digest_of",
    "digest_of_identity",
    "is_suspect",
    "publish_digest_of",
]


def digest_of(message: Any) -> str:
    """The name of a message's work in the store. Whatever its headers hold, it has one."""
    headers = message.headers if isinstance(message.headers, Mapping) else {}
    return digest_of_identity(identity_of(headers, task_id_of(message)))


def publish_digest_of(message: Any) -> str:
    """The name of one publish of a work with its body, over its copies and retries; a replay has its own.

    Empty where nothing tells one publish from the next, as with foreign producers on RabbitMQ: the same id
    and body may be a new work then, and to lose that is worse than the starts of a copy.
    """
    work = Work.of(message)
    return work.digest if work.publish or REPLAY_HEADER in (message.headers or {}) else ""


def digest_of_identity(identity: Identity) -> str:
    """The same, of an identity: for one who has no message in hand."""
    named = f"{identity.replay_number} {identity.delivery_key}"
    return sha256(named.encode("utf-8", "backslashreplace")).hexdigest()


def is_suspect(message: Any) -> bool:
    """Whether a start of the work may have ended in a death that nobody saw: asked about every message.

    One that comes for the first time, and names no work that was there before, is none.
    """
    headers = message.headers or {}
    return SUSPECT_HEADER in headers or KEY_HEADER in headers or may_have_twin(message)
