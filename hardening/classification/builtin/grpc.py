"""Rules for grpcio: the status code decides; RetryInfo and push-back metadata say how long to wait."""

from __future__ import annotations

from collections.abc import Iterator

from ..codes import attribute
from ..rule import Rule
from ..verdict import Kind

__all__ = ["RULES"]

NOT_NOW = frozenset({"ABORTED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"})
NEVER = frozenset(
    {
        "ALREADY_EXISTS", "DATA_LOSS", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE",
        "PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED",
    }
)  # fmt: skip

_RETRY_INFO = b"google.rpc.RetryInfo"


def _call(exc: BaseException, name: str) -> object:
    """What a method of the error answers. A bare grpc.RpcError has none."""
    method = attribute(exc, name)
    try:
        return method() if callable(method) else None
    except Exception:
        return None


def _status(exc: BaseException) -> str | None:
    name = attribute(_call(exc, "code"), "name")
    return name if isinstance(name, str) else None


def _verdict(code: str) -> Kind | None:
    if code in NOT_NOW:
        return Kind.TRANSIENT
    return Kind.PERMANENT if code in NEVER else None


def _retry_after(exc: BaseException) -> float | None:
    """Seconds from `grpc-retry-pushback-ms` (gRFC A6), `retry-after` or google.rpc.RetryInfo."""
    metadata = dict(_pairs(_call(exc, "trailing_metadata")))
    for name, unit in (("grpc-retry-pushback-ms", 1000), ("retry-after", 1)):
        text = metadata.get(name)
        if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 12:
            return int(text) / unit
    details = metadata.get("grpc-status-details-bin")
    return _retry_info(details) if isinstance(details, bytes) else None


def _pairs(metadata: object) -> Iterator[tuple[str, object]]:
    """The pairs of a trailing metadata: a tuple of pairs, or in grpc.aio an object that yields them."""
    try:
        for name, value in metadata:  # type: ignore[attr-defined]
            yield str(name), value
    except (TypeError, ValueError):
        return


def _retry_info(status: bytes) -> float | None:
    """`retry_delay` of a serialized google.rpc.Status that has a RetryInfo among its details.

    Read by hand, so that protobuf is not needed: Status{3: Any}, Any{1: type URL, 2: value},
    RetryInfo{1: Duration}, Duration{1: seconds, 2: nanoseconds}.
    """
    try:
        for field, detail in _fields(status):
            if field == 3 and isinstance(detail, bytes):
                any_ = dict(_fields(detail))
                url, value = any_.get(1), any_.get(2)
                if isinstance(url, bytes) and url.endswith(_RETRY_INFO) and isinstance(value, bytes):
                    return _duration(dict(_fields(value)).get(1))
    except (IndexError, ValueError):
        pass
    return None


def _duration(value: int | bytes | None) -> float | None:
    if not isinstance(value, bytes):
        return None
    parts = dict(_fields(value))
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int) or seconds >= 1 << 63 or nanos >= 10**9:
        return None  # Negative, or no duration.
    return seconds + nanos / 1e9


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message that are numbers or bytes; raises for what is no such message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        if key & 7 == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
        elif key & 7 == 2:
            size, at = _varint(message, at)
            if at + size > len(message):
                raise ValueError("a field ends after its message")
            yield key >> 3, message[at : at + size]
            at += size
        else:
            raise ValueError("neither a number nor bytes")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number of more than ten bytes")


RULES: tuple[Rule, ...] = (
    Rule(
        name="grpc.status",
        classes=("grpc.RpcError",),
        read=_status,
        decide=_verdict,
        verdict=Kind.UNKNOWN,
        retry_after=_retry_after,
        why=(
            "UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED and ABORTED pass; UNKNOWN, INTERNAL and "
            "CANCELLED may be anything; every other code is an answer that stays the same."
        ),
    ),
    Rule(
        name="grpc.timeout",
        classes=("grpc.FutureTimeoutError",),
        verdict=Kind.TRANSIENT,
        why="The call, or the channel's connection, was not ready in time.",
    ),
)
