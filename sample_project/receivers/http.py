"""An HTTP server that takes webhooks; the first part of the path says how it behaves.

/ok  /busy-once (503, then 200)  /busy (503)  /gone (404)  /slow  /drop (no answer at all)
/limited (429, Retry-After in seconds)  /limited-until (429, Retry-After as a date)
"""

from __future__ import annotations

import socket
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

from sample_project.receivers.mended import Mended, Visits

SLOW_SECONDS = 3.0
RETRY_AFTER_SECONDS = 1


class HttpReceiver:
    """The server, in threads of this process; `url` is where it listens."""

    def __init__(self, mended: Mended) -> None:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.mended = mended
        self._thread = Thread(
            target=self._server.serve_forever, args=(0.05,), name="http-receiver", daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End it, also when it was not started."""
        self._server.stopping.set()
        if self._thread.ident is not None:
            self._server.shutdown()  # Waits for the thread, for ever if there is none.
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # A whole gevent pool may connect at once.
    mended: Mended

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.visits = Visits()
        self.stopping = Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that gave up waiting is part of the play."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        behaviour = "ok" if self.server.mended else self.path.strip("/").partition("/")[0]
        if behaviour == "busy-once":
            behaviour = "busy" if self.server.visits.is_first(self.path) else "ok"
        match behaviour:
            case "ok":
                self._answer(HTTPStatus.OK)
            case "busy":
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": str(RETRY_AFTER_SECONDS)})
            case "limited":
                self._answer(HTTPStatus.TOO_MANY_REQUESTS, {"Retry-After": str(RETRY_AFTER_SECONDS)})
            case "limited-until":
                until = self.date_time_string(int(time.time()) + RETRY_AFTER_SECONDS)
                self._answer(HTTPStatus.TOO_MANY_REQUESTS, {"Retry-After": until})
            case "slow":
                self.server.stopping.wait(SLOW_SECONDS)
                self._answer(HTTPStatus.OK)
            case "drop":
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
            case _:
                self._answer(HTTPStatus.NOT_FOUND)

    def _answer(self, status: HTTPStatus, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the ledger tells what happened."""
