"""Messages that are no task, one of each kind, and how each is put into a queue."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import redis

from .stage import Stage

__all__ = ["ENVELOPES", "GARBAGE", "KINDS", "Kind", "body_of", "envelope", "publish", "push"]

JSON = "application/json"
GOOD = [[1], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]


@dataclass(frozen=True)
class Kind:
    """A message, and the letter that it becomes. `state`: of its result, where it has an id."""

    reason: str
    body: Any = field(default_factory=lambda: list(GOOD))
    headers: Mapping[str, Any] = field(default_factory=dict)
    content_type: str = JSON
    raw: bytes | None = None
    """Instead of `body`, as JSON."""

    without: tuple[str, ...] = ()
    """Headers that it lacks."""

    says: str = ""
    """What the letter's attempt says."""

    state: str | None = "FAILURE"


def v1(**more: Any) -> dict[str, Any]:
    return {"task": "intaking.served", "args": [1], "kwargs": {}, **more}


BOTH = ("task", "id")
KINDS: dict[str, Kind] = {
    "unregistered": Kind("unregistered", headers={"task": "nobody.knows"}, says="nobody.knows"),
    "no JSON": Kind("undecodable", raw=b'[[1], {"a": ', says="Expecting value"),
    "no UTF-8": Kind("undecodable", raw=b'[["\xff\xfe"], {}, {}]'),
    "no compression": Kind("undecodable", raw=b"plain", headers={"compression": "application/x-gzip"}),
    "nested too deep": Kind("undecodable", raw=b"[" * 2_400),
    "refused type": Kind(
        "content_refused", raw=b"cos\nsystem\n.", content_type="application/x-python-serialize"
    ),
    "unknown type": Kind("content_refused", raw=b"<xml/>", content_type="application/xml"),
    "two parts": Kind("malformed", body=[[1], {}], says="2 parts"),
    "a number": Kind("malformed", body=7, says="its body is a int"),
    "a text": Kind("malformed", raw=b"args", content_type="application/data", says="its body is a "),
    "no id": Kind("malformed", without=("id",), says="no id", state=None),
    "an id that is a list": Kind("malformed", headers={"id": ["a"]}, says="its id is a list", state=None),
    "an id that is a number": Kind("malformed", headers={"id": 7}, says="its id is a int", state=None),
    "a name that is a dict": Kind("malformed", headers={"task": {"a": 1}}, says="name is a dict"),
    "kwargs that are no mapping": Kind("malformed", body=[[1], [2], {}], says="keyword arguments are a list"),
    "args that are no list": Kind("malformed", body=["abc", {}, {}], says="arguments are a str"),
    "an embedded list": Kind("malformed", body=[[1], {}, [1]], says="embeds is a list"),
    "bad eta": Kind("malformed", headers={"eta": "tomorrow"}, says="tomorrow"),
    "eta out of range": Kind("malformed", headers={"eta": "9999-12-31T23:59:59-23:00"}, says="9999"),
    "bad expires": Kind("malformed", headers={"expires": "yesterday"}, says="yesterday"),
    "bad limits": Kind("malformed", headers={"timelimit": [1, 2, 3]}, says="timelimit"),
    "a shadow that is a list": Kind("malformed", headers={"shadow": ["a"]}, says="shadow"),
    "bad stamps": Kind("malformed", headers={"stamped_headers": ["a"], "stamps": [1]}, says="stamps"),
    "deep headers": Kind(
        "malformed", headers={"odd": json.loads("[" * 60 + "1" + "]" * 60)}, says="nested too deep"
    ),
    "expired": Kind("expired", headers={"expires": "2020-01-01T00:00:00+00:00"}, state="REVOKED"),
    "no task": Kind("not_a_task", body={"hello": "world"}, without=BOTH, state=None),
    "bytes of somebody": Kind(
        "content_refused", raw=b"\x00\x01", content_type="application/protobuf", without=BOTH, state=None
    ),
    "oversized": Kind("oversized", body=[["x" * 3000], {}, {}], says="more than"),
    "protocol 1 without id": Kind("malformed", body=v1(), without=BOTH, says="no id", state=None),
    "protocol 1, bad kwargs": Kind(
        "malformed", body=v1(id="v1-kwargs", kwargs=[1]), without=BOTH, says="keyword arguments"
    ),
    "protocol 1, unregistered": Kind(
        "unregistered", body=v1(id="v1-unknown", task="nobody.knew"), without=BOTH, says="nobody.knew"
    ),
    "protocol 1, bad eta": Kind("malformed", body=v1(id="v1-eta", eta="soon"), without=BOTH, says="soon"),
    "a huge header": Kind("unregistered", headers={"task": "nobody", "argsrepr": "y" * 50_000}),
}


def headers_for(kind: Kind) -> dict[str, Any]:
    headers: dict[str, Any] = {"lang": "py", "task": "intaking.served", "id": str(uuid4()), "retries": 0}
    headers = {name: value for name, value in headers.items() if name not in kind.without}
    if kind.without == BOTH:
        headers = {}
    return {**headers, **kind.headers}


def body_of(kind: Kind) -> bytes:
    return kind.raw if kind.raw is not None else json.dumps(kind.body).encode()


def publish(stage: Stage, kind: Kind) -> str | None:
    """Publish it over kombu; returns its task id, where it has one."""
    headers = headers_for(kind)
    with stage.sender.producer_pool.acquire(block=True) as producer:
        producer.publish(
            body_of(kind),
            content_type=kind.content_type,
            content_encoding="binary" if kind.raw is not None else "utf-8",
            headers=headers,
            exchange="",
            routing_key="celery",
            delivery_mode=2,
        )
    task_id = headers.get("id") or (kind.body.get("id") if isinstance(kind.body, dict) else None)
    return task_id if isinstance(task_id, str) else None


def envelope(**changes: Any) -> dict[str, Any]:
    """kombu's envelope of a good message, with changes; a value of ... takes the key out."""
    task_id = str(uuid4())
    made: dict[str, Any] = {
        "body": base64.b64encode(json.dumps(GOOD).encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": JSON,
        "headers": {"lang": "py", "task": "intaking.served", "id": task_id},
        "properties": {
            "correlation_id": task_id,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": "celery"},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": str(uuid4()),
        },
    }
    properties = changes.pop("properties_", {})
    made["properties"].update(properties)
    made.update(changes)
    for part in (made, made["properties"]):
        if isinstance(part, dict):
            for name in [name for name, value in part.items() if value is ...]:
                del part[name]
    return made


ENVELOPES: dict[str, tuple[str, Callable[[], Any]]] = {
    "a body that is not base64": ("undecodable", lambda: envelope(body="%%%\u20ac")),
    "a body that is a number": ("malformed", lambda: envelope(body=5, properties_={"body_encoding": ...})),
    "a body that is a dict": (
        "malformed",
        lambda: envelope(body={"a": 1}, properties_={"body_encoding": ...}),
    ),
    "no body": ("malformed", lambda: envelope(body=...)),
    "headers that are a list": ("undecodable", lambda: envelope(headers=[1])),
    "no headers": ("not_a_task", lambda: envelope(headers=None, body=base64.b64encode(b"{}").decode())),
    "a content type that is a list": ("malformed", lambda: envelope(**{"content-type": ["a"]})),
    "no properties": ("garbage", lambda: envelope(properties=...)),
    "properties that are a list": ("garbage", lambda: envelope(properties=[1])),
    "no delivery_info": ("garbage", lambda: envelope(properties_={"delivery_info": ...})),
    "delivery_info that is a text": ("garbage", lambda: envelope(properties_={"delivery_info": "here"})),
}
GARBAGE: dict[str, bytes] = {
    "bytes": b"\xff\xfe raw",
    "a text": b"hello",
    "a list": b"[1, 2]",
    "nothing": b"",
    "a number": b"5",
    "deep": b"[" * 100_000,
}


def push(stage: Stage, item: bytes) -> None:
    """Push bytes straight into the list of the queue."""
    with redis.Redis.from_url(stage.broker_url) as client:
        client.lpush("celery", item)
