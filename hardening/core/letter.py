"""The dead-letter record: what is kept of a message that failed for good, and its wire form."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

__all__ = ["COMPRESSED", "Attempt", "Canvas", "DeadLetter", "Payload", "dump_letter", "load_letter"]

COMPRESSED = "hardening_compressed"
"""True under this name in a payload's properties: its body could not be decompressed, and is as it came."""

WIRE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of the body that did not succeed. Texts are already redacted and bounded.

    `number` counts from 1 and is the message's retry count plus one. `verdict` is permanent,
    transient or unknown, and `rule` names the rule that said so; both are "" where nobody judged.
    """

    number: int
    error_class: str
    message: str
    traceback: str = ""
    verdict: str = ""
    rule: str = ""
    worker: str = ""
    started_at: datetime | None = None
    failed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The message as the broker delivered it: enough to publish it again, argument for argument.

    `body` is the raw body, decompressed where it could be; where not, COMPRESSED is among the properties. It
    and the headers may hold secrets.
    """

    body: bytes
    content_type: str | None
    content_encoding: str | None
    headers: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Canvas:
    """The workflow around the task, by task names only (arguments stay in the body)."""

    group: str | None = None
    chord: str | None = None
    chain: tuple[str, ...] = ()
    callbacks: tuple[str, ...] = ()
    errbacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One message that failed for good, complete enough to be understood and sent again.

    `delivery_key` names the work over retries, redeliveries and replays; `replay_number` is 0 for
    the first life of the message and counts its replays. `replay_of` is the id of the letter whose
    replay failed here. `argument_names` are the names of the positional arguments, in order, so
    that redaction by name works without the task's code.
    """

    delivery_key: str
    replay_number: int
    task_id: str
    task_name: str
    reason: str
    attempts: tuple[Attempt, ...]
    payload: Payload
    failed_at: datetime
    root_id: str | None = None
    parent_id: str | None = None
    replay_of: str | None = None
    exchange: str = ""
    routing_key: str = ""
    queue: str = ""
    priority: int | None = None
    eta: str | None = None
    expires: str | None = None
    redelivered: bool = False
    canvas: Canvas = field(default_factory=Canvas)
    argument_names: tuple[str, ...] = ()
    worker: str = ""
    release: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def last_attempt(self) -> Attempt:
        """The attempt that ended the message's life."""
        return self.attempts[-1]


def dump_letter(letter: DeadLetter, *, attempts: bool = True) -> bytes:
    """Encode a letter as JSON. Exact: `load_letter(dump_letter(x)) == x` for JSON-safe headers.

    `attempts`: or as one that has none.
    """
    # As `asdict`, without its copies of all that lies deeper: it is only read.
    plain = _plain(letter)
    plain["v"] = WIRE_VERSION
    plain["attempts"] = [_plain(attempt) for attempt in letter.attempts] if attempts else []
    plain["canvas"] = _plain(letter.canvas)
    plain["payload"] = _plain(letter.payload)
    plain["payload"]["body"] = base64.b64encode(letter.payload.body).decode("ascii")
    return _as_json(plain).encode()


def _plain(part: DeadLetter | Attempt | Canvas | Payload) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__slots__}


def load_letter(data: bytes | str) -> DeadLetter:
    """Decode what `dump_letter` of this release, an older or a newer one wrote.

    What this release does not know is left out, and what an older one did not write has its default.
    Raises ValueError for anything else.
    """
    try:
        plain = json.loads(data)
        if plain["v"] != WIRE_VERSION:
            raise ValueError("unknown version of the dead-letter wire form")
        known = _known(DeadLetter, plain)
        payload = _known(Payload, plain["payload"])
        payload["body"] = base64.b64decode(payload["body"], validate=True)
        known["payload"] = Payload(**payload)
        known["attempts"] = tuple(_attempt(a) for a in plain["attempts"])
        canvas: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v
            for k, v in _known(Canvas, plain.get("canvas") or {}).items()
        }
        known["canvas"] = Canvas(**canvas)
        known["argument_names"] = tuple(plain.get("argument_names") or ())
        known["failed_at"] = datetime.fromisoformat(plain["failed_at"])
        return DeadLetter(**known)
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"not a dead letter in wire form: {exc!r}") from exc


def _attempt(plain: Mapping[str, Any]) -> Attempt:
    known = _known(Attempt, plain)
    for name in ("started_at", "failed_at"):
        if known.get(name) is not None:
            known[name] = datetime.fromisoformat(known[name])
    return Attempt(**known)


def _known(kind: type, plain: Mapping[str, Any]) -> dict[str, Any]:
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in plain.items() if name in names}


def _encode(value: object) -> Any:
    # Headers come from any producer: what JSON cannot say is kept as text rather than lost.
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return str(value)


_as_json = json.JSONEncoder(default=_encode, separators=(",", ":")).encode
