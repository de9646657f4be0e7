"""What can be read of a message that is no task, or not a whole one. Pure; nothing in it raises."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any

from celery import Celery
from kombu.serialization import loads, prepare_accept_content

from hardening.capture import Delivery

from .shape import is_too_deep

__all__ = ["NAMELESS", "Reading", "accepted_by", "bytes_of", "headers_of", "read"]

NAMELESS = "(no task)"
_LONGEST_ID = 255


@dataclass(frozen=True, slots=True)
class Reading:
    """What a message says of itself. `request` holds the fields of a task request that could be read:
    those of the headers, or with protocol 1 those of the body, and the canvas that the body embeds."""

    task_id: str
    task_name: str
    has_id: bool
    request: Mapping[str, Any]
    args: Any = ()
    kwargs: Any = field(default_factory=dict)
    embed: Mapping[str, Any] = field(default_factory=dict)
    is_decoded: bool = False


def headers_of(raw: Delivery) -> dict[str, Any]:
    """The headers that are names and values; none where they are no mapping."""
    return _named(raw.headers)


def read(raw: Delivery, accept: Collection[str]) -> Reading:
    """Read a message. Its body only where its content type is among those that may be decoded."""
    request = headers_of(raw)
    payload = _payload(raw, accept)
    embed: Mapping[str, Any] = {}
    args: Any = ()
    kwargs: Any = {}
    if isinstance(payload, (list, tuple)):
        parts = (*payload, *(None,) * 3)[:3]
        args, kwargs = parts[:2]
        embed = _named(parts[2])
    elif isinstance(payload, Mapping):
        body = _named(payload)
        args, kwargs = body.get("args", ()), body.get("kwargs", {})
        embed = {name: body.get(name) for name in ("callbacks", "errbacks", "chord")}
        # Of protocol 1: the task is named in its body. Its headers stand above, as with Celery's mixed form.
        body.setdefault("group", body.get("taskset"))
        request = {**{name: body[name] for name in body if name not in ("args", "kwargs")}, **request}
    named_id = _text(request.get("id"))
    return Reading(
        task_id=named_id or _id_of(raw),
        task_name=_text(request.get("task")) or NAMELESS,
        has_id=bool(named_id),
        request=request,
        args=args,
        kwargs=kwargs,
        embed=embed,
        is_decoded=payload is not None,
    )


@lru_cache(maxsize=8)
def _prepared(accept: tuple[str, ...]) -> frozenset[str]:
    return frozenset(prepare_accept_content(accept) or ())


def accepted_by(app: Celery) -> frozenset[str]:
    """The content types that the app's workers decode; what it does not accept is not even tried."""
    try:
        return _prepared(tuple(app.conf.accept_content or ()))
    # An unknown name among them, which Celery says itself.
    except Exception:
        return frozenset()


def _payload(raw: Delivery, accept: Collection[str]) -> Any:
    # Without a content type kombu takes it for bytes and decodes nothing.
    if not isinstance(raw.content_type, str) or raw.content_type not in accept:
        return None
    try:
        return loads(raw.body, raw.content_type, raw.content_encoding or "utf-8", accept=accept)
    # A decoder may raise anything about what somebody sent.
    except Exception:
        return None


def _named(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {}
    return {name: each for name, each in value.items() if isinstance(name, str)}


def _id_of(raw: Delivery) -> str:
    """A name for a message that has none: the same each time the same message is delivered.

    Two of the same bytes have one name where the broker tells nothing of the publish: one letter, captured
    twice.
    """
    properties = _named(raw.properties)
    given = _text(properties.get("correlation_id")) or _text(properties.get("message_id"))
    published = _named(properties.get("delivery_info")).get("published")
    headers: object = raw.headers
    if isinstance(headers, Mapping):
        headers = {name: each for name, each in _named(headers).items() if not _is_of_delivery(name)}
    parts = (bytes_of(raw.body), _shown(raw.content_type), _shown(headers), given, _shown(published))
    digest = sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()
    return f"message-{digest[:40]}"


def _shown(value: object) -> str:
    """A value as text, however deep it is: `repr` gives up at a depth that differs from caller to caller."""
    if not is_too_deep(value):
        return repr(value)
    parts: list[str] = []
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, Mapping):
            parts.append(f"mapping of {len(each)}")
            left += each.values()
            left += each
        elif isinstance(each, (list, tuple, set, frozenset)):
            parts.append(f"{type(each).__name__} of {len(each)}")
            left += each
        else:
            parts.append(repr(each))
    return "\0".join(parts)


def _is_of_delivery(name: str) -> bool:
    """Whether a header tells of one delivery, and is another one at the next."""
    return name == "redelivered" or name.startswith(("x-", "hardening_"))


def _text(value: Any) -> str:
    """A name as text; empty for what is none."""
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, (str, int)):
        try:
            return str(value)[:_LONGEST_ID]
        except ValueError:  # An integer of too many digits.
            return ""
    return ""


def bytes_of(body: Any) -> bytes:
    """The bytes of a body, as they were where it has been taken for text."""
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    if not body:
        return b""
    try:  # A list or a mapping where kombu's envelope has the text of a body.
        return json.dumps(body, default=repr).encode()
    except Exception:
        return repr(type(body)).encode()
