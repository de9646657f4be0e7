"""A web server that remembers what it was sent, channels that remember or hang, and a condition to set."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from hardening.alerts.notice import News, Notice
from hardening.core.alerts import Condition, Fact, Severity

__all__ = ["HangingChannel", "Postbox", "Posted", "Probe", "RecordingChannel", "notice"]


@dataclass(frozen=True)
class Posted:
    """One request."""

    headers: dict[str, str]
    body: bytes

    @property
    def notice(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


class Postbox:
    """Answers `status` to every POST, and keeps it. A context manager."""

    def __init__(self, status: int = 200, location: str = "") -> None:
        self.status, self.location = status, location
        self.posted: list[Posted] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.box = self
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/hook"

    def __enter__(self) -> Postbox:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    box: Postbox


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.box.posted.append(Posted({k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response_only(self.server.box.status)
        if self.server.box.location:
            self.send_header("Location", self.server.box.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the tests say what happened."""


@dataclass
class Probe:
    """A condition whose facts a test sets; counts the looks."""

    name: str = "shop.probe"
    facts: Iterable[Fact] = ()
    looks: int = 0
    error: Exception | None = None
    terms: dict[str, Any] = field(default_factory=dict)

    @property
    def condition(self) -> Condition:
        given = {"severity": Severity.ERROR, "every_seconds": 0.05, "gone_seconds": 0.0, **self.terms}
        return Condition(name=self.name, look=self._look, **given)

    def _look(self) -> Iterable[Fact]:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return list(self.facts)


class RecordingChannel:
    """Keeps what it is told in `told`, of the whole process; fails while `down`."""

    told: list[Notice] = []
    down = False

    def __init__(self, *, secret: str = "") -> None:
        self._secret = secret

    def send(self, notice: Notice) -> None:
        if type(self).down:
            raise ConnectionError(f"no answer for {self._secret}")
        self.told.append(notice)


class HangingChannel:
    """Waits until it is released."""

    released = Event()

    def send(self, notice: Notice) -> None:
        self.released.wait(60)


def notice(**parts: Any) -> Notice:
    """Some notice."""
    given = {
        "id": "a-1",
        "incident": "a",
        "news": News.OPENED,
        "condition": "shop.stock",
        "severity": Severity.ERROR,
        "subject": "shelf 7",
        "summary": "the shelf is empty",
        "detail": "since noon",
        "link": "https://shop.example/shelf/7",
        "opened_at": 0.0,
        "at": 60.0,
        "app": "shop",
        **parts,
    }
    return Notice(**given)
