"""Who a delivery is: the delivery key, the replay number and the headers that carry them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

__all__ = [
    "ATTEMPTS_HEADER",
    "BEAT_HEADER",
    "DELAYED_HEADER",
    "DEPENDENCY_HEADER",
    "DUE_HEADER",
    "FIRST_HEADER",
    "KEY_HEADER",
    "LETTER_HEADER",
    "MOVED_HEADER",
    "OFFERS_HEADER",
    "PARKED_HEADER",
    "PUBLISHED_HEADER",
    "RECOVERED_HEADER",
    "REPLAY_HEADER",
    "SUPERSEDED_HEADER",
    "SUSPECT_HEADER",
    "TWIN_HEADER",
    "Identity",
    "first_header",
    "first_moment",
    "identity_of",
    "mark_publish",
    "publish_of",
    "replay_task_id",
]

KEY_HEADER = "hardening_key"
REPLAY_HEADER = "hardening_replay"
LETTER_HEADER = "hardening_letter"
ATTEMPTS_HEADER = "hardening_attempts"
FIRST_HEADER = "hardening_first"
"""When the message was first published, and its id. The age of its work counts from here."""

PUBLISHED_HEADER = "hardening_published"
"""One publish of a message, over its retries and redeliveries: the same id sent again is another one."""

DUE_HEADER = "hardening_due"
"""When a message that waits in stages may run: seconds since the epoch."""

DELAYED_HEADER = "hardening_delayed"
"""The id under which the message was parked until it was due: what has it was released."""

DEPENDENCY_HEADER = "hardening_dependency"
"""The dependency that failed at the last attempt."""

PARKED_HEADER = "hardening_parked"
"""How often the message was put back because its dependency was down."""

TWIN_HEADER = "hardening_twin"
"""On the retries of a message that may have a twin: they may meet the twin, or its retries."""

BEAT_HEADER = "hardening_beat"
"""On the message of a schedule: which one, and the due time that it is for, as milliseconds since 1970."""

SUPERSEDED_HEADER = "hardening_superseded"
"""On the message of a schedule that expires at its next due time, and not because somebody said when."""

SUSPECT_HEADER = "hardening_suspect"
"""On the retries of a suspect: their starts are counted with its own."""

MOVED_HEADER = "hardening_moved"
"""The queue that a message was moved to for its last try. It is moved once."""

RECOVERED_HEADER = "hardening_recovered"
"""On a message that was taken from a silent worker: whose it was, when, and how often. One that a worker gave
back has been redelivered as well, and says nothing of the kind."""

OFFERS_HEADER = "hardening_offers"
"""How often a message of an unknown task was offered again, and its id: others may inherit the header."""

_MOST_REPLAYS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Identity:
    """The same work over retries, redeliveries and replays."""

    delivery_key: str
    replay_number: int
    replay_of: str | None


def first_header(moment: float, task_id: str) -> str:
    """The value of FIRST_HEADER: with the id, since some pass a task's headers on to its children."""
    return f"{moment:.3f} {task_id}"


def first_moment(header: object, task_id: str) -> float | None:
    """The first publish in seconds since the epoch; None where the header says none for this task."""
    if isinstance(header, str):
        moment, _, owner = header.partition(" ")
        if owner != task_id:
            return None
        try:
            header = float(moment)
        except ValueError:
            return None
    return float(header) if isinstance(header, (int, float)) else None


def mark_publish(headers: object = None, **_: object) -> None:
    """Receives before_task_publish: gives a message a mark of its own. A retry keeps that of its message."""
    if isinstance(headers, dict) and headers.get("id") and not publish_of(headers, headers["id"]):
        headers[PUBLISHED_HEADER] = f"{uuid4().hex} {headers['id']}"


def publish_of(headers: Mapping[str, Any], task_id: object) -> str:
    """The mark; empty where there is none for this task."""
    mark, _, owner = str(headers.get(PUBLISHED_HEADER) or "").partition(" ")
    return mark if owner == str(task_id) else ""


def identity_of(headers: Mapping[str, Any], task_id: str) -> Identity:
    """Read the identity of a message. One that was never replayed is named by its task id.

    Headers and id come from any producer: whatever they hold, this is an identity.
    """
    key = headers.get(KEY_HEADER)
    if not key:
        return Identity(str(task_id), 0, None)
    try:
        number = int(headers.get(REPLAY_HEADER) or 0)
    except (TypeError, ValueError, OverflowError):
        number = 0
    letter = headers.get(LETTER_HEADER)
    return Identity(str(key), max(0, min(number, _MOST_REPLAYS)), str(letter) if letter else None)


def replay_task_id(delivery_key: str, replay_number: int, body_digest: str) -> str:
    """The task id of a replay: deterministic, so that sending it twice is the same task.

    With the digest of the body, because nothing keeps a producer from sending two works under one id.
    """
    # A key comes from any producer: JSON lets through lone surrogates, which UTF-8 does not.
    key = delivery_key.encode("utf-8", "backslashreplace").decode("utf-8")
    return str(uuid5(NAMESPACE_URL, f"celery-hardening:{key}:{replay_number}:{body_digest}"))
