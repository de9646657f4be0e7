"""Readers of what errors carry: HTTP status, Retry-After, TLS alert. No library is imported.

Every reader is defensive: an attribute that is missing, odd or raises reads as None, so that a rule
asks no more than "is there a code".
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from .verdict import Kind

__all__ = [
    "asks_to_wait",
    "attribute",
    "headers_of",
    "held_errors",
    "http_status",
    "http_verdict",
    "is_a",
    "retry_after",
    "tls_alert",
    "tls_verdict",
]

# An error rarely holds more than three others; the bound is for a chain that a program builds in a loop.
MOST_HELD = 16

NOT_NOW = frozenset({"408", "425", "429"})
NEVER = frozenset({"501", "505"})

_STATUS = re.compile(r"[1-5][0-9][0-9]")
_TOO_MANY = re.compile(r"too many ([1-5][0-9][0-9]) error responses")
_SECONDS = re.compile(r"[+-]?[0-9]{1,300}(?:\.[0-9]{0,300})?")
# Headers that say the same in milliseconds: AWS, and clouds whose clients wait less than a second.
_MILLISECONDS = ("x-amz-retry-after", "retry-after-ms")
_WAITS = ("retry-after", *_MILLISECONDS)


def attribute(thing: object, *path: str) -> object:
    """The value behind a path of attributes or of keys of a mapping, None where there is none."""
    for name in path:
        try:
            thing = thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)
        except Exception:  # A property of somebody's class: httpx's `request` raises RuntimeError.
            return None
        if thing is None:
            return None
    return thing


def is_a(exc: BaseException, *names: str) -> bool:
    """Whether one of the dotted names is that of a class in the error's MRO."""
    return any(_path(cls) in names for cls in type(exc).__mro__)


def held_errors(exc: BaseException) -> Iterator[BaseException]:
    """The error, then those that it was made from, nearest first: its cause, reason, arguments.

    Never by `__context__`: what was being handled when an error arose says nothing about its own cause.
    """
    waiting, seen = deque([exc]), {id(exc)}
    while waiting:
        error = waiting.popleft()
        yield error
        for inner in _direct(error):
            if isinstance(inner, BaseException) and id(inner) not in seen and len(seen) < MOST_HELD:
                seen.add(id(inner))
                waiting.append(inner)


def http_status(exc: BaseException) -> str | None:
    """The HTTP status that an error was raised for, as "503".

    Known: requests, httpx (`response.status_code`), aiohttp (`status`), urllib (`code`), urllib3 ("too
    many 503 error responses", also inside of requests.RetryError), botocore and stripe.
    """
    for path in (
        ("response", "status_code"),
        ("response", "ResponseMetadata", "HTTPStatusCode"),
        ("http_status",),
        ("status",),
        ("code",),
    ):
        found = _status(attribute(exc, *path))
        if found:
            return found
    return next((match[1] for error in held_errors(exc) if (match := _TOO_MANY.search(_text(error)))), None)


def http_verdict(status: str) -> Kind | None:
    """What an HTTP status says of another try; None for what is not an error status."""
    if not _STATUS.fullmatch(status) or status < "400":
        return None
    if status in NOT_NOW or (status >= "500" and status not in NEVER):
        return Kind.TRANSIENT
    return Kind.PERMANENT


def headers_of(exc: BaseException) -> dict[str, str]:
    """The headers of the answer that an error was raised for, names in lower case; {} without any."""
    for path in (
        ("response", "headers"),
        ("response", "ResponseMetadata", "HTTPHeaders"),
        ("headers",),
    ):
        found = attribute(exc, *path)
        if found is not None:
            return _lowered(found)
    return {}


def retry_after(exc: BaseException, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> float | None:
    """The seconds that the other side asked to wait, by its Retry-After header; None if it did not.

    A number counts as seconds. A date counts from the answer's own Date header where there is one, so
    that a difference of the two clocks does not matter, else from `now`. What has passed is 0.
    """
    headers = headers_of(exc)
    for name in _MILLISECONDS:
        asked = _seconds(headers.get(name, ""))
        if asked is not None:
            return asked / 1000
    value = headers.get("retry-after", "")
    asked = _seconds(value)
    if asked is not None:
        return asked
    until = _date(value)
    if until is None:
        return None
    return max(0.0, (until - (_date(headers.get("date", "")) or now())).total_seconds())


def asks_to_wait(exc: BaseException) -> bool:
    """Whether a 4xx that refuses for good has a Retry-After header all the same, also one that cannot be
    read: it says "later"."""
    status = http_status(exc)
    if status is None or not status.startswith("4") or http_verdict(status) is not Kind.PERMANENT:
        return False
    headers = headers_of(exc)
    return any(headers.get(name, "").strip() for name in _WAITS)


def tls_alert(exc: BaseException) -> str | None:
    """OpenSSL's name of what failed, "CERTIFICATE_VERIFY_FAILED", also of an error held by the given one."""
    for error in held_errors(exc):
        if is_a(error, "ssl.SSLCertVerificationError", "urllib3.util.ssl_match_hostname.CertificateError"):
            return "CERTIFICATE_VERIFY_FAILED"
        if is_a(error, "ssl.SSLError"):
            reason = attribute(error, "reason")
            return reason if isinstance(reason, str) and reason else type(error).__name__
    return None


def tls_verdict(alert: str) -> Kind | None:
    """Permanent when one side refused the other's certificate; None for any other failure of TLS."""
    return Kind.PERMANENT if "CERTIFICATE" in alert or "UNKNOWN_CA" in alert else None


def _path(cls: type) -> str:
    module = cls.__module__
    return cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"


def _direct(error: BaseException) -> Iterator[object]:
    yield error.__cause__
    yield attribute(error, "reason")  # urllib, urllib3.MaxRetryError
    yield attribute(error, "original_error")  # urllib3.ProxyError
    yield attribute(error, "kwargs", "error")  # botocore
    args = attribute(error, "args")
    if isinstance(args, tuple):
        yield from args[:MOST_HELD]


def _status(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    text = str(int(value))
    return text if _STATUS.fullmatch(text) else None


def _text(error: BaseException) -> str:
    args = attribute(error, "args")
    first = args[0] if isinstance(args, tuple) and args else None
    return first if isinstance(first, str) else ""


def _lowered(headers: object) -> dict[str, str]:
    """Any kind of headers as a dict; of several values of one name the first."""
    found: dict[str, str] = {}
    try:
        for name, value in headers.items():  # type: ignore[attr-defined]
            if isinstance(name, str) and isinstance(value, str):
                found.setdefault(name.lower(), value)
    except Exception:  # Not headers at all.
        return {}
    return found


def _seconds(value: str) -> float | None:
    text = value.strip()
    if not _SECONDS.fullmatch(text):
        return None
    seconds = float(text)
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _date(value: str) -> datetime | None:
    """A date in one of HTTP's three forms; all of them mean UTC (RFC 9110, 5.6.7)."""
    try:
        found = parsedate_to_datetime(value.strip())
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
