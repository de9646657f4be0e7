"""Rules for HTTP clients and TLS: requests, httpx, aiohttp, urllib3, urllib and http.client."""

from __future__ import annotations

from ..codes import (
    asks_to_wait,
    attribute,
    held_errors,
    http_status,
    http_verdict,
    is_a,
    retry_after,
    tls_alert,
    tls_verdict,
)
from ..rule import Rule
from ..system_codes import decide_errno, errno_code, resolver_code
from ..verdict import Kind

__all__ = ["RULES"]

_AIOHTTP = "aiohttp.client_exceptions."
_REDIRECTS = "TooManyRedirects"
_URL = "URL"


def _is_incomplete(exc: BaseException) -> bool:
    """In the words of zlib, and of urllib3 and httpx about Zstandard."""
    return any("incomplete" in str(error) or "truncated" in str(error) for error in held_errors(exc))


def _is_unreadable(exc: BaseException) -> bool:
    return any(is_a(error, "aiohttp.http_exceptions.HttpProcessingError") for error in held_errors(exc))


def _urlopen_reason(exc: BaseException) -> str | None:
    """urllib has one class for a failed connection and for a bad URL, whose reason is a text."""
    reason = attribute(exc, "reason")
    if isinstance(reason, OSError):
        return errno_code(reason) or resolver_code(reason)
    return _URL if isinstance(reason, str) and not reason.startswith("ftp error") else None


def _urlopen_verdict(code: str) -> Kind | None:
    return Kind.PERMANENT if code == _URL else decide_errno(code)


def _gave_up_on(exc: BaseException) -> str | None:
    """What urllib3 tried again in vain: a status, "TooManyRedirects" or the class of the last error."""
    status = http_status(exc)
    if status:
        return status
    reason = None
    for error in held_errors(exc):
        if is_a(error, "urllib3.exceptions.MaxRetryError"):
            reason = attribute(error, "reason")
    if not isinstance(reason, BaseException):
        return None
    return _REDIRECTS if "too many redirects" in str(reason) else type(reason).__name__


def _gave_up_verdict(code: str) -> Kind | None:
    return Kind.PERMANENT if code == _REDIRECTS else http_verdict(code)


RULES: tuple[Rule, ...] = (
    Rule(
        name="tls.certificate",
        classes=(
            "ssl.SSLError",
            "requests.exceptions.ConnectionError",
            "httpx.TransportError",
            _AIOHTTP + "ClientConnectionError",
            _AIOHTTP + "ClientSSLError",
            "urllib3.exceptions.MaxRetryError",
            "urllib3.exceptions.ProxyError",
            "urllib3.exceptions.SSLError",
            "urllib.error.URLError",
        ),
        read=tls_alert,
        decide=tls_verdict,
        why="One side refused the other's certificate: somebody has to renew it, trust it or mend the name.",
    ),
    Rule(
        name="tls.fingerprint",
        classes=(_AIOHTTP + "ServerFingerprintMismatch",),
        verdict=Kind.PERMANENT,
        why="The server showed another certificate than the one that is pinned.",
    ),
    Rule(
        name="tls.connection",
        classes=("ssl.SSLError",),
        read=tls_alert,
        verdict=Kind.TRANSIENT,
        why="The TLS connection broke or its handshake failed, for another reason than a certificate.",
    ),
    Rule(
        name="http.redirects",
        classes=(
            "requests.exceptions.TooManyRedirects",
            "httpx.TooManyRedirects",
            _AIOHTTP + "TooManyRedirects",
        ),
        verdict=Kind.PERMANENT,
        why="The server sends the client in a circle.",
    ),
    Rule(
        name="http.incomplete_content",
        classes=(
            "requests.exceptions.ContentDecodingError",
            "httpx.DecodingError",
            "urllib3.exceptions.DecodeError",
        ),
        when=_is_incomplete,
        verdict=Kind.TRANSIENT,
        why="The compressed content of the answer broke off.",
    ),
    Rule(
        name="http.retry_after",
        classes=(
            "requests.exceptions.HTTPError",
            "httpx.HTTPStatusError",
            _AIOHTTP + "ClientResponseError",
            _AIOHTTP + "ContentTypeError",
            "urllib.error.HTTPError",
        ),
        when=asks_to_wait,
        read=http_status,
        verdict=Kind.TRANSIENT,
        retry_after=retry_after,
        why='A refusal (4xx) with a Retry-After header says "later", such as 403 for too many requests.',
    ),
    Rule(
        name="http.content",
        classes=(
            "requests.exceptions.ContentDecodingError",
            "requests.exceptions.JSONDecodeError",
            "httpx.DecodingError",
            _AIOHTTP + "ContentTypeError",
            "urllib3.exceptions.DecodeError",
        ),
        read=http_status,
        decide=http_verdict,
        verdict=Kind.UNKNOWN,
        retry_after=retry_after,
        why=(
            "The answer's content is not what its headers or its reader say: compressed, encoded or JSON. "
            "Without an error status it may be the page of a proxy or of a maintenance, or a lasting mistake."
        ),
    ),
    Rule(
        name="http.answer",
        classes=(
            "requests.exceptions.ChunkedEncodingError",
            "httpx.RemoteProtocolError",
            _AIOHTTP + "ClientPayloadError",
            "urllib3.exceptions.IncompleteRead",
            "urllib3.exceptions.InvalidChunkLength",
            "urllib3.exceptions.ProtocolError",
            "urllib.error.ContentTooShortError",
            "http.client.BadStatusLine",
            "http.client.IncompleteRead",
            "http.client.LineTooLong",
            "http.client.RemoteDisconnected",
        ),
        verdict=Kind.TRANSIENT,
        why="The answer broke off or was no HTTP, as when a server is killed while it answers.",
    ),
    Rule(
        name="http.unreadable_answer",
        classes=(_AIOHTTP + "ClientResponseError",),
        when=_is_unreadable,
        verdict=Kind.TRANSIENT,
        why="The answer was no HTTP; aiohttp gives this error the status 400, which the server never said.",
    ),
    Rule(
        name="http.status",
        classes=(
            "requests.exceptions.HTTPError",
            "httpx.HTTPStatusError",
            _AIOHTTP + "ClientResponseError",
            "urllib.error.HTTPError",
        ),
        read=http_status,
        decide=http_verdict,
        retry_after=retry_after,
        why=(
            '408, 425, 429 and every 5xx but 501 and 505 say "not now"; any other error status says that '
            "this very request is refused. A Retry-After header is obeyed."
        ),
    ),
    Rule(
        name="http.retries",
        classes=("urllib3.exceptions.MaxRetryError", "requests.exceptions.RetryError"),
        read=_gave_up_on,
        decide=_gave_up_verdict,
        verdict=Kind.TRANSIENT,
        why="urllib3 tried again in vain: what it met last decides, without a status it is transient.",
    ),
    Rule(
        name="http.url",
        classes=(
            "requests.exceptions.InvalidURL",
            "requests.exceptions.InvalidSchema",
            "requests.exceptions.MissingSchema",
            "requests.exceptions.URLRequired",
            "httpx.InvalidURL",
            "httpx.UnsupportedProtocol",
            _AIOHTTP + "InvalidURL",
            _AIOHTTP + "NonHttpUrlClientError",
            "urllib3.exceptions.LocationValueError",
            "http.client.InvalidURL",
        ),
        verdict=Kind.PERMANENT,
        why="No request can be made of this URL.",
    ),
    Rule(
        name="http.request",
        classes=(
            "requests.exceptions.InvalidHeader",
            "requests.exceptions.InvalidJSONError",
            "requests.exceptions.StreamConsumedError",
            "requests.exceptions.UnrewindableBodyError",
            "httpx.CookieConflict",
            "httpx.StreamError",
            "urllib3.exceptions.InvalidHeader",
            "urllib3.exceptions.UnrewindableBodyError",
            "http.client.ImproperConnectionState",
        ),
        verdict=Kind.PERMANENT,
        why="The program uses its HTTP client in a way that cannot work, or the request cannot be sent.",
    ),
    Rule(
        name="http.protocol",
        classes=("httpx.LocalProtocolError",),
        verdict=Kind.UNKNOWN,
        why="The request cannot be sent so, or the connection was in a state that a new one is not in.",
    ),
    Rule(
        name="http.stale_connection",
        classes=("http.client.CannotSendRequest", "http.client.ResponseNotReady"),
        verdict=Kind.TRANSIENT,
        why="The connection is still in the middle of an earlier request; a new one begins afresh.",
    ),
    Rule(
        name="http.timeout",
        classes=(
            "requests.exceptions.Timeout",
            "requests.exceptions.ConnectTimeout",
            "httpx.TimeoutException",
            _AIOHTTP + "ServerTimeoutError",
            "urllib3.exceptions.TimeoutError",
        ),
        verdict=Kind.TRANSIENT,
        why="The server did not answer in time.",
    ),
    Rule(
        name="http.connection",
        classes=(
            "requests.exceptions.ConnectionError",
            "httpx.TransportError",
            _AIOHTTP + "ClientConnectionError",
            "urllib3.exceptions.NewConnectionError",
            "urllib3.exceptions.EmptyPoolError",
            "urllib3.exceptions.ProxyError",
            "urllib3.exceptions.SSLError",
        ),
        verdict=Kind.TRANSIENT,
        why="No connection, or it broke: refused, reset, unreachable, or the name could not be resolved.",
    ),
    Rule(
        name="http.urlopen",
        classes=("urllib.error.URLError",),
        read=_urlopen_reason,
        decide=_urlopen_verdict,
        verdict=Kind.TRANSIENT,
        why="urllib could not connect: the number of the error decides. Where the URL is bad, it has none.",
    ),
)
