"""What an operation publishes for a letter: the same work again, or a copy that is new work. Pure.

A replay has the identity that `dlq.message` gives it. A copy has a key and a task id of its own, made of the
operation and the letter, so that sending it twice is the same copy; and replay number 0 in its header, by
which a worker knows that it may meet its twin. It is in no group and no chord: it would be counted as one
member more.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid5

from hardening.core.identity import KEY_HEADER, REPLAY_HEADER
from hardening.core.letter import DeadLetter as LetterRecord

from ..errors import NotRepaired
from ..message import Destination, destination_of, headers_for_replay, properties_for_replay
from .publishing import Outgoing
from .states import Kind

__all__ = ["copy_task_id", "outgoing"]


def copy_task_id(operation_id: UUID, letter_id: UUID) -> str:
    """The task id, and the delivery key, of an operation's copy of a letter."""
    return str(uuid5(operation_id, str(letter_id)))


def outgoing(
    record: LetterRecord,
    *,
    kind: Kind,
    letter_id: UUID,
    task_id: str,
    queue: str | None,
    is_fanout: Callable[[str], bool],
) -> Outgoing:
    """The message of one item. Raises NoDestination, or NotRepaired where no copy can be made."""
    destination: Destination = destination_of(record, queue=queue or None, is_fanout=is_fanout)
    headers = headers_for_replay(record, letter_id=letter_id, task_id=task_id)
    if kind is Kind.COPY:
        record, headers = _as_new_work(record, headers, task_id)
    return Outgoing(
        task_id=task_id,
        body=record.payload.body,
        content_type=record.payload.content_type,
        content_encoding=record.payload.content_encoding,
        headers=headers,
        properties=properties_for_replay(record, task_id=task_id),
        exchange=destination.exchange,
        routing_key=destination.routing_key,
        queue=destination.queue,
    )


def _as_new_work(
    record: LetterRecord, headers: dict[str, Any], task_id: str
) -> tuple[LetterRecord, dict[str, Any]]:
    headers = {**headers, KEY_HEADER: task_id, REPLAY_HEADER: 0}
    if "task" in headers:
        headers |= {"root_id": task_id, "parent_id": None, "group": None, "group_index": None}
        body = _out_of_chord(record)
    else:
        body = _with_id(record, task_id)
    return replace(record, payload=replace(record.payload, body=body)), headers


def _out_of_chord(record: LetterRecord) -> bytes:
    """The body; without its chord, where it is in one."""
    if not record.canvas.chord:
        return record.payload.body
    found = _json_of(record)
    if not (isinstance(found, list) and len(found) == 3 and isinstance(found[2], dict)):
        raise NotRepaired(
            "the message is a member of a chord and its body is not JSON: a copy would be counted there"
        )
    found[2]["chord"] = None
    chain = found[2].get("chain")
    if isinstance(chain, list) and chain and isinstance(chain[0], dict):
        # The last of its chain stands first, and may be the member.
        chain[0]["options"] = {**(chain[0].get("options") or {}), "chord": None, "group_id": None}
    return json.dumps(found).encode()


def _with_id(record: LetterRecord, task_id: str) -> bytes:
    """The body of a message of protocol 1, which carries its id."""
    found = _json_of(record)
    if not isinstance(found, dict):
        raise NotRepaired("the message carries its task id in a body that is not JSON: no copy can be made")
    return json.dumps({**found, "id": task_id, "taskset": None, "chord": None}).encode()


def _json_of(record: LetterRecord) -> Any:
    try:
        return json.loads(record.payload.body) if record.payload.content_type == "application/json" else None
    except (ValueError, RecursionError):
        return None
