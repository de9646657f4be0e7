"""The messages of a chord that is run again as a whole: the members of the old one, in a new one. Pure.

A member keeps its place in the chord and all of its work. What names the chord is new: the group's id, and
the body with its ids. All new ids are made of the old ones and of the operation, so that whoever sends a
message again sends the same one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid5

from hardening.core.identity import KEY_HEADER, LETTER_HEADER, REPLAY_HEADER
from hardening.core.letter import DeadLetter as LetterRecord

from ..errors import NotRerun
from ..message import destination_of, headers_for_replay, properties_for_replay
from .publishing import Outgoing

__all__ = ["NewChord", "Seat", "moved", "new_chord", "outgoing_member", "seat_of"]

_IDS = ("task_id", "group_id")
_NESTED = ("tasks", "header", "body")
_LINKS = ("link", "link_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A member's place in its chord. `counts_as`: the id of the task whose result the chord waits for."""

    group: str
    index: int
    body: Mapping[str, Any]
    counts_as: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChord:
    """The chord in which the members run again. `rename` makes the new id of an old one."""

    group: str
    body: Mapping[str, Any]
    rename: Callable[[str], str]


def seat_of(record: LetterRecord) -> Seat | None:
    """Where a message sits: the task itself, or the last one of its chain. None: in no chord.

    Raises NotRerun for a message that tells it to nobody here.
    """
    if not record.canvas.chord:
        return None
    embedded, headers = _parts(record)[2], record.payload.headers
    group: Any
    counts_as: Any
    if isinstance(embedded.get("chord"), dict):
        group, index = headers.get("group"), headers.get("group_index")
        body, counts_as = embedded["chord"], record.task_id
    else:
        options = _last_of_chain(embedded)
        group, index = options.get("group_id"), options.get("group_index")
        body, counts_as = options.get("chord"), options.get("task_id")
    if not group or type(index) is not int or not isinstance(body, dict) or not counts_as:
        raise NotRerun(f"the message of task {record.task_id} does not say its place in the chord")
    return Seat(group=str(group), index=index, body=body, counts_as=str(counts_as))


def new_chord(operation_id: UUID, seat: Seat) -> NewChord:
    """The chord that takes the place of a member's. Raises NotRerun for one whose body is a part of another
    chord: that one is over."""
    names = uuid5(operation_id, seat.group)

    def rename(old: str) -> str:
        return str(names) if old == seat.group else str(uuid5(names, old))

    if _is_in_a_chord(seat.body):
        raise NotRerun(
            "the body of this chord is itself a member of another chord, which is over: send the whole again "
            "from the code that made it"
        )
    body = _renamed(seat.body, rename)
    _mark(body)
    return NewChord(group=str(names), body=body, rename=rename)


def moved(record: LetterRecord, chord: NewChord) -> LetterRecord:
    """The message of a member, in the new chord. Raises NotRerun."""
    body = _parts(record)
    headers = dict(record.payload.headers)
    embedded = {
        name: [_renamed(each, chord.rename) for each in value]
        if name in ("chain", "callbacks", "errbacks") and isinstance(value, list)
        else value
        for name, value in body[2].items()
    }
    if isinstance(embedded.get("chord"), dict):
        embedded["chord"] = dict(chord.body)
        headers["group"] = chord.group
    else:
        _last_of_chain(embedded)["chord"] = dict(chord.body)
    encoded = json.dumps([body[0], body[1], embedded]).encode()
    return replace(record, payload=replace(record.payload, body=encoded, headers=headers))


def outgoing_member(
    record: LetterRecord, *, task_id: str, queue: str | None, is_fanout: Callable[[str], bool]
) -> Outgoing:
    """The message of a member that had succeeded: work of its own, which meets its own copies alone."""
    destination = destination_of(record, queue=queue or None, is_fanout=is_fanout)
    headers = headers_for_replay(record, letter_id=UUID(int=0), task_id=task_id)
    del headers[LETTER_HEADER]
    headers |= {KEY_HEADER: task_id, REPLAY_HEADER: 0}
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


def _parts(record: LetterRecord) -> list[Any]:
    """The body of a message of protocol 2: arguments, keyword arguments, canvas."""
    try:
        body = json.loads(record.payload.body) if record.payload.content_type == "application/json" else None
    except (ValueError, RecursionError):
        body = None
    if not (isinstance(body, list) and len(body) == 3 and isinstance(body[2], dict)):
        raise NotRerun(
            f"the body of task {record.task_id} is not JSON: what chord it is in is not known here"
        )
    return body


def _last_of_chain(embedded: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the last task of a chain, which stands first; empty where there is none."""
    chain = embedded.get("chain")
    if not (isinstance(chain, list) and chain and isinstance(chain[0], dict)):
        return {}
    options = chain[0].get("options")
    return options if isinstance(options, dict) else {}


def _is_in_a_chord(signature: Any) -> bool:
    if not isinstance(signature, Mapping):
        return False
    steps = (signature.get("kwargs") or {}).get("tasks") if signature.get("subtask_type") else None
    return bool((signature.get("options") or {}).get("chord")) or any(map(_is_in_a_chord, steps or ()))


def _renamed(signature: Any, rename: Callable[[str], str]) -> Any:
    """A signature with new ids in all of its parts; arguments are as they were."""
    if isinstance(signature, list):
        return [_renamed(each, rename) for each in signature]
    if not isinstance(signature, Mapping):
        return signature
    new = dict(signature)
    options = dict(new.get("options") or {})
    options |= {name: rename(str(options[name])) for name in _IDS if options.get(name)}
    options |= {
        name: _renamed(options[name], rename) for name in (*_LINKS, "chord", "chain") if name in options
    }
    new["options"] = options
    if new.get("subtask_type") and isinstance(new.get("kwargs"), Mapping):
        kwargs = dict(new["kwargs"])
        kwargs |= {name: _renamed(kwargs[name], rename) for name in _NESTED if name in kwargs}
        new["kwargs"] = kwargs
    return new


def _mark(body: dict[str, Any]) -> None:
    """The first task of the body meets its copies: it may be published twice, where what publishes it is.

    Not where it is a group or a chord of its own: all of its tasks would have one key.
    """
    first = body
    while first.get("subtask_type") == "chain" and (first.get("kwargs") or {}).get("tasks"):
        first = first["kwargs"]["tasks"][0]
    key = first["options"].get("task_id")
    if key and not first.get("subtask_type"):
        headers = dict(first["options"].get("headers") or {})
        first["options"]["headers"] = headers | {KEY_HEADER: key, REPLAY_HEADER: 0}
