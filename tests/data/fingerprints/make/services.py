"""What the shop talks to: Redis, PostgreSQL, and servers for HTTP, TLS and SMTP that fail on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

from aiosmtpd.controller import Controller

from hardening.testing.ports import LOOPBACK, free_port
from hardening.testing.servers import PostgresServer, RedisServer
from tests.helpers.failing_http import FailingHttp, self_signed

__all__ = ["Services", "services"]

_closing = Event()


@dataclass(frozen=True)
class Services:
    redis: RedisServer
    postgres: PostgresServer
    http_url: str
    tls_port: int
    smtp_port: int


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        _, kind, *rest = self.path.split("/")
        if kind == "slow":
            _closing.wait(1)
        if kind == "cut":
            self.close_connection = True
            return
        status = int(rest[0]) if kind == "status" else 200
        body = b"<html><body>Sorry</body></html>"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Mailbox:
    async def handle_RCPT(  # noqa: N802
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        return f"550 5.1.1 <{address}>: no such mailbox here"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that went away are what is wanted."""


@contextmanager
def services(directory: Path) -> Iterator[Services]:
    """All of them, until the block ends."""
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        postgres = stack.enter_context(PostgresServer())
        http = _Server((LOOPBACK, 0), _Answers)
        stack.callback(http.shutdown)
        stack.callback(_closing.set)
        Thread(target=http.serve_forever, args=(0.05,), daemon=True).start()
        tls = stack.enter_context(FailingHttp(tls=self_signed(directory / "self-signed.pem")))
        smtp = Controller(
            _Mailbox(), hostname=LOOPBACK, port=free_port(), server_hostname="mail.shop.example"
        )
        smtp.start()
        stack.callback(smtp.stop)
        yield Services(
            redis=redis,
            postgres=postgres,
            http_url=f"http://{LOOPBACK}:{http.server_port}",
            tls_port=tls.port,
            smtp_port=smtp.port,
        )
