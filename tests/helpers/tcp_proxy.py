"""A TCP proxy before a server, which can swallow what clients send, and cut all connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["TcpProxy", "tcp_proxy"]


class TcpProxy:
    """Between clients and one server on this machine."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.swallows = False
        """Whether what clients send is lost on its way, as behind a dead link."""

        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def cut(self) -> None:
        """End every connection; new ones are taken, and nothing is swallowed any more."""
        self.swallows = False
        for end in list(self._ends):
            _shut(end)

    def close(self) -> None:
        """The end: nothing is left open."""
        _shut(self._listener)
        self.cut()
        for thread in list(self._threads):
            thread.join(5)
        for end in (self._listener, *self._ends):
            end.close()

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            self._ends += [client, server]
            self._start(self._pass_on, client, server, True)
            self._start(self._pass_on, server, client, False)

    def _pass_on(self, source: socket.socket, target: socket.socket, of_client: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not (of_client and self.swallows):
                    target.sendall(data)
        _shut(target)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def tcp_proxy(host: str, port: int) -> Iterator[TcpProxy]:
    """A proxy for the time of the block."""
    proxy = TcpProxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()
