"""A TCP proxy before a server, which can swallow what clients send, and cut all connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hardening.testing.ports import LOOPBACK

__all__ = ["TcpProxy", "tcp_proxy"]

_CHUNK = 65536


class TcpProxy:
    """Between clients and one server on this machine; thousands of connections may come and go."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server((LOOPBACK, 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.swallows = False
        """Whether what clients send is lost on its way, as behind a dead link."""

        self._open: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        self._start(self._accept)

    def cut(self) -> None:
        """End every connection; new ones are taken, and nothing is swallowed any more."""
        self.swallows = False
        with self._lock:
            ends = list(self._open.items())
        for client, server in ends:
            _shut(client)
            _shut(server)

    def close(self) -> None:
        """The end: nothing is left open."""
        _shut(self._listener)
        self._listener.close()
        self.cut()

    def _start(self, target: object, *args: object) -> None:
        threading.Thread(target=target, args=args, daemon=True).start()  # type: ignore[arg-type]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        """Both directions of one connection, the second one in a thread of its own."""
        try:
            server = socket.create_connection(self._server)
        except OSError:
            client.close()
            return
        for end in (client, server):
            with suppress(OSError):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open[client] = server
        back = threading.Thread(target=self._pass_on, args=(server, client, False), daemon=True)
        back.start()
        self._pass_on(client, server, True)
        back.join()
        with self._lock:
            del self._open[client]
        client.close()
        server.close()

    def _pass_on(self, source: socket.socket, target: socket.socket, of_client: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
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
