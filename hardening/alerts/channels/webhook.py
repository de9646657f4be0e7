"""WebhookChannel: each notice as JSON, by POST. Its URL is a secret and stands in no error."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from hardening.alerts.notice import Notice
from hardening.core.errors import HardeningError

__all__ = ["NotDelivered", "WebhookChannel"]


class NotDelivered(HardeningError):
    """The other side did not take a notice."""


class WebhookChannel:
    """One request for each notice. Taken is what is answered with 2xx within the time-out.

    A redirect is not followed: a POST would arrive as a GET, or elsewhere. With a `secret` the header
    X-Hardening-Signature is "sha256=" and the hex HMAC of the time in X-Hardening-Timestamp, a full
    stop, and the body. A notice that is sent again has the same `id`.
    """

    def __init__(
        self, *, url: str, secret: str = "", headers: Mapping[str, str] | None = None, timeout: float = 5.0
    ) -> None:
        """A user and password in the URL are sent as basic authentication. Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the url is none of http or https")
        netloc = parts.netloc.rpartition("@")[2]
        self._url = parts._replace(netloc=netloc, fragment="").geturl()
        self._server = f"{parts.scheme}://{netloc}"
        self._secret = secret.encode()
        self._timeout = timeout
        self._headers = {
            "Content-Type": "application/json",
            "User-Agent": "celery-hardening",
            **_authorization(parts.username, parts.password),
            **(headers or {}),
        }
        self._opener = build_opener(_NoRedirect)

    def send(self, notice: Notice) -> None:
        """Raises NotDelivered."""
        body = json.dumps(notice.as_dict()).encode()
        request = Request(self._url, body, {**self._headers, **self._signature(body)}, method="POST")  # noqa: S310
        try:
            with self._opener.open(request, timeout=self._timeout):
                return
        except HTTPError as exc:
            exc.close()
            raise NotDelivered(f"{self._server} answers {exc.code}") from None
        except URLError as exc:
            raise NotDelivered(f"{self._server}: {exc.reason}") from None
        except OSError as exc:
            raise NotDelivered(f"{self._server}: {type(exc).__name__}: {exc}") from None
        except HTTPException as exc:  # Its text may quote the path.
            raise NotDelivered(f"{self._server}: {type(exc).__name__}") from None

    def _signature(self, body: bytes) -> dict[str, Any]:
        if not self._secret:
            return {}
        at = str(int(time.time()))
        digest = hmac.digest(self._secret, at.encode() + b"." + body, "sha256").hex()
        return {"X-Hardening-Timestamp": at, "X-Hardening-Signature": f"sha256={digest}"}


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """The answer 3xx is an error then."""


def _authorization(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    pair = f"{unquote(user)}:{unquote(password or '')}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
