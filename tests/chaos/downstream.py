"""The service that is down: answers 503 until its time has come, then 200, and writes each call down."""

from __future__ import annotations

import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from types import TracebackType
from typing import Self, TextIO

from hardening.testing.ports import LOOPBACK

__all__ = ["Call", "Downstream"]


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it arrived; `at` is in seconds since 1970."""

    at: float
    task_id: str
    status: int


class Downstream:
    """The server, in threads of this process; a context manager. `calls` is a file of one line a call."""

    def __init__(self, calls: Path) -> None:
        self._calls = calls
        self._server = _Server((LOOPBACK, 0), _Handler)
        self._server.log = calls.open("a", buffering=1)
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_port}/"

    def go_down(self, seconds: float) -> float:
        """Answer 503 for so long. Returns the time of the beginning."""
        began = time.time()
        self._server.back_at = began + seconds
        return began

    @property
    def done(self) -> int:
        """How many tasks it has served."""
        return len(self._server.served)

    def calls(self) -> list[Call]:
        """All calls so far, in the order of their arrival."""
        lines = [line.split("\t") for line in self._calls.read_text().splitlines()]
        return sorted((Call(float(at), who, int(status)) for at, who, status in lines), key=lambda c: c.at)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._server.log.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.back_at = 0.0
        self.log: TextIO
        self.served: set[str] = set()
        self.lock = Lock()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 5

    def do_POST(self) -> None:
        at = time.time()
        who = self.headers.get("X-Task", "")
        status = 503 if at < self.server.back_at else 200
        with self.server.lock:
            self.server.log.write(f"{at:.4f}\t{who}\t{status}\n")
            if status == 200:
                self.server.served.add(who)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the file tells what happened."""
