"""What befalls a database while it is in use."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.db import connections

from hardening.testing.servers import LocalServer

from .wait import wait_until

__all__ = ["end_session", "frozen", "rename", "within"]


def rename(alias: str, old: str, new: str) -> None:
    """Give a table another name, as if a migration had not run."""
    with connections[alias].cursor() as cursor:
        cursor.execute(f"ALTER TABLE {old} RENAME TO {new}")


def end_session(alias: str) -> None:
    """End the connection of this thread from the server's side."""
    connection = connections[alias]
    other = connections.create_connection(alias)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_backend_pid()")
            statement = "SELECT pg_terminate_backend(%s)"
        else:
            cursor.execute("SELECT CONNECTION_ID()")
            statement = "KILL %s"
        session = cursor.fetchone()[0]
    with other.cursor() as cursor:
        cursor.execute(statement, [session])
    other.close()


class within:  # noqa: N801  (reads as a sentence)
    """Fails when the block takes longer."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        self.start = time.monotonic()

    def __exit__(self, *_: object) -> None:
        took = time.monotonic() - self.start
        assert took < self.seconds, f"took {took:.1f} s"


@contextmanager
def frozen(server: LocalServer) -> Iterator[None]:
    """The server and all its children stand still; its machine still takes connections and packets."""
    parent = server.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    everyone = [parent, *map(int, children)]  # Each session of PostgreSQL has a process group of its own.
    for process in everyone:
        os.kill(process, signal.SIGSTOP)
    try:
        wait_until(lambda: all(_stands_still(process) for process in everyone))
        yield
    finally:
        for process in everyone:
            with suppress(ProcessLookupError):  # PostgreSQL ends some by itself.
                os.kill(process, signal.SIGCONT)


def _stands_still(process: int) -> bool:
    threads = Path(f"/proc/{process}/task").iterdir()
    return all((thread / "stat").read_text().rpartition(")")[2].split()[0] in "TZ" for thread in threads)
