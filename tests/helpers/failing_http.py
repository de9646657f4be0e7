"""A local HTTP server that fails in the ways that servers fail, for clients to meet."""

from __future__ import annotations

import itertools
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Event, Thread
from types import TracebackType

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from hardening.testing.ports import LOOPBACK

__all__ = ["UNRESOLVABLE", "Answer", "FailingHttp", "self_signed"]

# Longer than a name may be, so that the resolver refuses it at once, also on a machine without a network.
UNRESOLVABLE = ".".join(["nowhere" * 8] * 5) + ".invalid"


@dataclass(frozen=True)
class Answer:
    """What a path answers. `missing` bytes of the body are announced, not sent; `raw` is all that is sent."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    missing: int = 0
    slow: bool = False
    drop: bool = False
    raw: bytes | None = None


class FailingHttp:
    """The server, in threads of this process; a context manager. Each path answers as it was told.

    `slow` is never: such a request is answered when the server is closed, so that nothing waits for
    time. With `tls`, a context for servers, it speaks HTTPS.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._server = _Server((LOOPBACK, 0), _Handler)
        if tls is not None:
            # Handshakes in the threads of the connections: a client that breaks one off stops nobody.
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._scheme = "https" if tls is not None else "http"
        self._numbers = itertools.count(1)
        self._thread = Thread(
            target=self._server.serve_forever, args=(0.02,), name="failing-http", daemon=True
        )

    @property
    def port(self) -> int:
        return self._server.server_port

    def answering(self, status: int = 200, *, retry_after: object = None, **parts: object) -> str:
        """A URL that answers so, whatever the method and whatever follows its first segment."""
        headers = dict(parts.pop("headers", None) or {})  # type: ignore[call-overload]
        if retry_after is not None:
            headers["Retry-After"] = str(retry_after)
        name = str(next(self._numbers))
        self._server.answers[name] = Answer(status, headers, **parts)  # type: ignore[arg-type]
        return f"{self._scheme}://{LOOPBACK}:{self.port}/{name}"

    def __enter__(self) -> FailingHttp:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stopping.set()
        self._server.shutdown()
        self._server.server_close()


def self_signed(pem: Path) -> ssl.SSLContext:
    """A context for a server whose certificate nobody trusts who does not trust the file `pem`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, LOOPBACK)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(LOOPBACK))]), critical=False)
        # What Python 3.13 wants to see of an authority before it trusts it.
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem.write_bytes(
        certificate.public_bytes(Encoding.PEM)
        + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # Closing waits for them: no socket outlives its test.
    request_queue_size = 32

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.answers: dict[str, Answer] = {}
        self.stopping = Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is what many tests are about."""


class _Handler(BaseHTTPRequestHandler):
    # HTTP/1.0, so that each connection ends with its answer and no client keeps one open.
    server: _Server
    timeout = 5  # For a client that connects and says nothing.

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = self.server.answers.get(self.path.split("?")[0].split("/")[1], Answer(404))
        if answer.slow:
            self.server.stopping.wait()
        elif answer.drop:
            self.connection.shutdown(socket.SHUT_RDWR)
        elif answer.raw is not None:
            self.wfile.write(answer.raw)
        else:
            self._send(answer)

    do_POST = do_PUT = do_HEAD = do_GET  # noqa: N815 (http.server's names)

    def _send(self, answer: Answer) -> None:
        self.send_response_only(answer.status)  # Without a Date of its own.
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body) + answer.missing))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the tests say what happened."""
