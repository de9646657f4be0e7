"""What is wrong with a message, if anything, before Celery makes a request of it. Pure.

Celery assumes of a message what its own producers do. Each test here stands for an error that some other
message would raise in the worker's main loop, where it ends the worker or makes it reconnect for ever, or
in the child, before there is anything that could fail. What passes is Celery's.

Texts name the field and quote no argument: these may be secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from hardening.core.reasons import Reason

__all__ = [
    "MOST_DEPTH",
    "Flaw",
    "Times",
    "embedded_of",
    "flaw_of",
    "flaw_of_body",
    "flaw_of_properties",
    "is_too_deep",
]

MOST_DEPTH = 50
"""Of the values of headers, which are copied, pickled and dumped; far more than any producer nests."""

_MOST_DEPTH_OF_BODY = 200
"""Arguments are pickled on their way to the child, beside the body: at some 450 levels that fails."""

_MOST_QUOTED = 100
_NO_LIMITS = [None, None]
_LISTS = ("callbacks", "errbacks", "chain")


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why a message is no task."""

    reason: Reason
    text: str


@dataclass(frozen=True, slots=True)
class Times:
    """How the app reads times."""

    is_eta: Callable[[Any], bool]
    """Whether it is a time that a worker's timer takes."""

    is_expires: Callable[[Any], bool]
    """Whether it is a time."""


def flaw_of(headers: Any, payload: Any, times: Times) -> Flaw | None:
    """None, or what is wrong with a message whose body was decoded to `payload`. Any value is an answer."""
    if not _is_mapping(headers):
        return Flaw(Reason.NOT_A_TASK, f"its headers are {_kind(headers)}, not names and values")
    if "task" in headers:
        if isinstance(payload, (list, tuple)):
            if len(payload) != 3:
                return _malformed(f"its body has {len(payload)} parts, not arguments, keywords and embedded")
            fields, (args, kwargs, embed) = headers, payload
        elif _is_mapping(payload) and "args" in payload:  # Celery's mixed form.
            fields = {**payload, **headers}
            args, kwargs, embed = payload["args"], payload.get("kwargs", {}), payload
        else:
            return _malformed(f"its body is {_kind(payload)}, not arguments, keywords and embedded")
    elif _is_mapping(payload) and "task" in payload:
        fields = payload
        args, kwargs, embed = payload.get("args", ()), payload.get("kwargs", {}), payload
    else:
        return Flaw(Reason.NOT_A_TASK, "neither its headers nor its body name a task")
    return (
        _flaw_of_identity(fields)
        or _flaw_of_fields(fields, times, deepest=MOST_DEPTH if fields is headers else _MOST_DEPTH_OF_BODY)
        or (_flaw_of_depth(headers, MOST_DEPTH) if fields is not headers else None)
        or _flaw_of_arguments(args, kwargs)
        or _flaw_of_embedded(embed)
    )


def flaw_of_properties(properties: Any) -> Flaw | None:
    """The same of its properties: they go to the child with it, and on Redis anything may stand there."""
    for name, value in properties.items() if isinstance(properties, Mapping) else ():
        # On RabbitMQ the headers stand among them.
        if isinstance(value, (Mapping, list, tuple)) and name != "application_headers" and is_too_deep(value):
            return _malformed("its properties are nested too deep")
    return None


def flaw_of_body(message: Any, payload: Any) -> Flaw | None:
    """The same of how deep its body is: of most no more is asked than whether it could be."""
    if message.content_type == "application/json":  # In UTF-8, whatever encoding it tells.
        body = _bytes_of(message.body)
        if body.count(b"[") + body.count(b"{") <= _MOST_DEPTH_OF_BODY:
            return None
    return _malformed("its body is nested too deep") if is_too_deep(payload, _MOST_DEPTH_OF_BODY) else None


def embedded_of(embed: Any) -> dict[str, Any]:
    """Of an embedded canvas what has its right shape."""
    if not isinstance(embed, Mapping):
        return {}
    found: dict[str, Any] = {
        name: [each for each in embed[name] if isinstance(each, Mapping)]
        for name in _LISTS
        if isinstance(embed.get(name), (list, tuple))
    }
    if isinstance(embed.get("chord"), Mapping):
        found["chord"] = embed["chord"]
    return found


def _bytes_of(body: Any) -> bytes:
    """A body as bytes, also where it has been taken for text."""
    if isinstance(body, bytes):
        return body
    return body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body or b"")


def is_too_deep(value: Any, most: int = MOST_DEPTH) -> bool:
    """Whether a value holds others more than `most` levels deep."""
    level = [value]
    for _ in range(most + 1):
        below: list[Any] = []
        for each in level:
            if isinstance(each, Mapping):
                below += each.values()
            elif isinstance(each, (list, tuple, set, frozenset)):
                below += each
        level = [each for each in below if isinstance(each, (Mapping, list, tuple, set, frozenset))]
        if not level:
            return False
    return True


def _flaw_of_fields(fields: Mapping[str, Any], times: Times, *, deepest: int = MOST_DEPTH) -> Flaw | None:
    get = fields.get
    shadow = get("shadow")
    if shadow is not None and type(shadow) is not str:
        return _malformed(f"its shadow name is {_kind(shadow)}")
    eta = get("eta")
    if eta is not None and not times.is_eta(eta):
        return _malformed(f"its eta is no time that a worker can wait for: {_quoted(eta)}")
    expires = get("expires")
    if expires is not None and not times.is_expires(expires):
        return _malformed(f"its expires is no time: {_quoted(expires)}")
    limits = get("timelimit")
    if limits and limits != _NO_LIMITS and not _are_limits(limits):
        return _malformed("its timelimit is no pair of seconds")
    if get("stamped_headers") and not _are_stamps(fields):
        return _malformed("its stamps are no names and values")
    return _flaw_of_depth(fields, deepest)


def _flaw_of_identity(fields: Mapping[str, Any]) -> Flaw | None:
    task, task_id = fields.get("task"), fields.get("id")
    if type(task) is not str or not task or not _is_text(task):
        return _malformed(f"its task's name is {_kind(task)}")
    if type(task_id) is not str or not task_id or not _is_text(task_id):
        return _malformed("it has no id" if task_id is None else f"its id is {_kind(task_id)}")
    return None


def _flaw_of_depth(fields: Mapping[str, Any], deepest: int) -> Flaw | None:
    for name, value in fields.items():
        if type(name) is not str:
            return _malformed(f"the name of one of its headers is {_kind(name)}")
        if not value or (type(value) is not dict and type(value) is not list) or name == "timelimit":
            continue
        if is_too_deep(value, deepest):
            return _malformed(f"its {_quoted(name)} is nested too deep")
    return None


def _flaw_of_arguments(args: Any, kwargs: Any) -> Flaw | None:
    if not isinstance(args, (list, tuple)):
        return _malformed(f"its arguments are {_kind(args)}, not a list")
    if not _is_mapping(kwargs):
        return _malformed(f"its keyword arguments are {_kind(kwargs)}, not names and values")
    for name in kwargs:
        if type(name) is not str:
            return _malformed(f"the name of one of its keyword arguments is {_kind(name)}")
    return None


def _flaw_of_embedded(embed: Any) -> Flaw | None:
    if embed is None:
        return None
    if not _is_mapping(embed):
        return _malformed(f"what its body embeds is {_kind(embed)}, not names and values")
    chord = embed.get("chord")
    if chord is not None and not _is_mapping(chord):
        return _malformed(f"its chord is {_kind(chord)}")
    for name in _LISTS:
        signatures = embed.get(name)
        if signatures and not (
            isinstance(signatures, (list, tuple)) and all(isinstance(each, Mapping) for each in signatures)
        ):
            return _malformed(f"its {name} are no signatures")
    return None


def _are_limits(limits: Any) -> bool:
    return (
        isinstance(limits, (list, tuple))
        and len(limits) == 2
        and all(each is None or (isinstance(each, (int, float)) and _is_count(each)) for each in limits)
    )


def _is_count(number: float) -> bool:
    try:
        return isfinite(number) and number >= 0
    except OverflowError:  # An integer beyond every float.
        return False


def _are_stamps(fields: Mapping[str, Any]) -> bool:
    names, stamps = fields.get("stamped_headers"), fields.get("stamps")
    return (
        isinstance(names, (list, tuple))
        and all(isinstance(name, str) for name in names)
        and (not stamps or isinstance(stamps, Mapping))
    )


def _is_mapping(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)


def _is_text(name: str) -> bool:
    """Whether it can be written: JSON lets through lone surrogates, which UTF-8 does not."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _malformed(text: str) -> Flaw:
    return Flaw(Reason.MALFORMED, text)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if value == "" and isinstance(value, str):
        return "empty"
    return f"a {type(value).__name__}"


def _quoted(value: Any) -> str:
    if isinstance(value, str):
        return ascii(value[:_MOST_QUOTED])
    return _kind(value)
