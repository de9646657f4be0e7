"""A loopback port that no one else on this machine is about to use."""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"

# Below the range from which kernels number outgoing connections (32768 on Linux): a port picked there
# could be taken by any client connection before the server binds it, or while the server is restarted.
FIRST_PORT, LAST_PORT = 15000, 32000

_handed_out: set[int] = set()


def free_port() -> int:
    """A port on 127.0.0.1 that is free now and that this process has not handed out before."""
    dice = random.SystemRandom()
    for _ in range(1000):
        port = dice.randint(FIRST_PORT, LAST_PORT)
        if port not in _handed_out and not _is_bound(port):
            _handed_out.add(port)
            return port
    raise OSError(f"no free port on {LOOPBACK} between {FIRST_PORT} and {LAST_PORT}")


def _is_bound(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return True
        return False


def first_answer(port: int, *, request: bytes = b"", timeout: float = 2.0) -> bytes:
    """What a server on the loopback port says first, after `request`; empty when it does not answer."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=timeout) as connection:
            connection.sendall(request)
            return connection.recv(65536)
    except OSError:
        return b""
