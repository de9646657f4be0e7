"""Raw messages that are no tasks: one of each way to be wrong, each with its key somewhere in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from celery import Celery

from hardening.core.broker import confirming_connection, publish_raw

__all__ = ["NAMELESS", "Raw", "raw_message", "send"]

OVERSIZED_BYTES = 400_000
NAMELESS = ("no_id", "no_task", "garbage")
"""Those without an id: nobody can wait for their result."""

_QUICK = "hardening.chaos.quick"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A message as it is sent. `bare`: pushed into a list of Redis, without an envelope."""

    body: bytes
    content_type: str = "application/json"
    content_encoding: str = "utf-8"
    headers: Mapping[str, Any] = field(default_factory=dict)
    bare: bool = False


def raw_message(malformation: str, key: str) -> Raw:
    """The message. Raises KeyError for a name that is not known."""
    return _MAKERS[malformation](key)


def send(app: Celery, raw: Raw, *, queue: str) -> None:
    """Returns when the broker has it."""
    with confirming_connection(app) as connection:
        if raw.bare and connection.transport.driver_type == "redis":
            opened: Any = connection.channel()
            with opened as channel:
                channel.client.lpush(f"{channel.global_keyprefix}{queue}", raw.body)
            return
        publish_raw(
            connection,
            body=raw.body,
            content_type=raw.content_type,
            content_encoding=raw.content_encoding,
            headers=raw.headers,
            routing_key=queue,
        )


def _headers(key: str, **more: Any) -> dict[str, Any]:
    return {"lang": "py", "task": _QUICK, "id": key, "root_id": key, "retries": 0, **more}


def _body(args: Any = (), kwargs: Any = None) -> bytes:
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    return json.dumps([list(args), {} if kwargs is None else kwargs, embed]).encode()


def _without(key: str, name: str) -> dict[str, Any]:
    return {header: value for header, value in _headers(key).items() if header != name}


_MAKERS: Mapping[str, Callable[[str], Raw]] = {
    "unregistered": lambda key: Raw(body=_body(), headers=_headers(key, task="hardening.chaos.nobody")),
    "undecodable": lambda key: Raw(body=b'{"not json', headers=_headers(key)),
    "content_type": lambda key: Raw(
        body=b"cos\nsystem\n.",
        content_type="application/x-python-serialize",
        content_encoding="binary",
        headers=_headers(key),
    ),
    "wrong_shape": lambda key: Raw(body=json.dumps({"args": 1}).encode(), headers=_headers(key)),
    "kwargs": lambda key: Raw(body=_body(kwargs=[1, 2]), headers=_headers(key)),
    "eta": lambda key: Raw(body=_body(), headers=_headers(key, eta="the day after")),
    "no_id": lambda key: Raw(body=_body([key]), headers=_without(key, "id") | {"root_id": None}),
    "no_task": lambda key: Raw(body=json.dumps({"hello": key}).encode(), headers={}),
    "oversized": lambda key: Raw(body=_body(["x" * OVERSIZED_BYTES]), headers=_headers(key)),
    "garbage": lambda key: Raw(
        body=f"\x00 garbage {key}".encode(), content_type="application/octet-stream", bare=True
    ),
}
