"""A private Sentinel that watches one private Redis."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hardening.testing.ports import first_answer
from hardening.testing.servers.base import LocalServer
from hardening.testing.servers.redis import RedisServer, redis_binary


class RedisSentinel(LocalServer):
    """One Sentinel with a quorum of one, quick to see that the master is down."""

    name = "sentinel"

    def __init__(
        self,
        master: RedisServer,
        *,
        master_name: str = "master",
        down_after_ms: int = 1000,
        data_dir: Path | None = None,
        port: int | None = None,
    ) -> None:
        self.master_name = master_name
        self._master = master
        self._down_after_ms = down_after_ms
        self._binary = redis_binary()
        super().__init__(data_dir=data_dir, port=port)

    @property
    def url(self) -> str:
        """For Celery, together with `broker_transport_options={"master_name": ...}`."""
        return f"sentinel://{self.host}:{self.port}/0"

    def is_ready(self) -> bool:
        return first_answer(self.port, request=b"PING\r\n").startswith(b"+PONG")

    def master_port(self) -> int:
        """The port of the Redis that it holds to be the master now."""
        return int(self._ask(f"SENTINEL get-master-addr-by-name {self.master_name}")[-1])

    def replica_count(self) -> int:
        """How many replicas of the master it has found."""
        answer = self._ask(f"SENTINEL master {self.master_name}")
        return int(answer[answer.index("num-slaves") + 1])

    def _ask(self, command: str) -> list[str]:
        reply = first_answer(self.port, request=f"{command}\r\n".encode())
        return [line for line in reply.decode().splitlines() if line[:1] not in ("*", "$")]

    def _prepare(self) -> None:
        # Sentinel keeps its state in its configuration file, so the file must be its own.
        (self.data_dir / "sentinel.conf").write_text(
            f"port {self.port}\n"
            f"bind {self.host}\n"
            f"dir {self.data_dir}\n"
            "protected-mode no\n"
            f"sentinel monitor {self.master_name} {self._master.host} {self._master.port} 1\n"
            f"sentinel down-after-milliseconds {self.master_name} {self._down_after_ms}\n"
            f"sentinel failover-timeout {self.master_name} {10 * self._down_after_ms}\n"
        )

    def _command(self) -> Sequence[str | os.PathLike[str]]:
        return [self._binary, self.data_dir / "sentinel.conf", "--sentinel"]
