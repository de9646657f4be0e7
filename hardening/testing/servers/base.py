"""What all private servers share: a port, a data directory, one process, and the order of their life."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from hardening.testing.errors import ProcessError, ServerMissing
from hardening.testing.ports import LOOPBACK, free_port
from hardening.testing.processes import ManagedProcess


class LocalServer(ABC):
    """A private server on 127.0.0.1.

    The port and the data outlive `stop`, `kill` and `restart`; `close` (or leaving the `with` block) ends
    the server and removes the data. Constructing one raises `ServerMissing` when this machine has no
    program for it.
    """

    name: ClassVar[str]
    start_timeout_seconds: ClassVar[float] = 30.0
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    stop_timeout_seconds: ClassVar[float] = 20.0

    def __init__(self, *, data_dir: Path | None = None, port: int | None = None) -> None:
        """`data_dir` is created if need be and removed by `close`; default: a new temporary directory."""
        self.host = LOOPBACK
        self.port = free_port() if port is None else port
        self._given_dir = data_dir
        self._data_dir: Path | None = None
        self._process: ManagedProcess | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """The address as Celery or a database client takes it."""

    @abstractmethod
    def _command(self) -> Sequence[str | os.PathLike[str]]:
        """The server's command line, in the foreground."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether the server answers a client now."""

    def _prepare(self) -> None:
        """Create the first content of the data directory; called once, before the first start."""

    def _before_start(self) -> None:
        """Bring up what the server needs beside it."""

    def _after_end(self) -> None:
        """End what `_before_start` brought up."""

    def _env(self) -> dict[str, str] | None:
        return None

    def _user(self) -> str | None:
        """The account to run as; None: the current one."""
        return None

    @property
    def data_dir(self) -> Path:
        """Where the server keeps its data; made at first use."""
        if self._data_dir is None:
            if self._given_dir is None:
                self._data_dir = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
            else:
                self._data_dir = self._given_dir
                self._data_dir.mkdir(parents=True, exist_ok=True)
            if (user := self._user()) is not None:
                shutil.chown(self._data_dir, user)
        return self._data_dir

    @property
    def process(self) -> ManagedProcess:
        """The server's process, with its log."""
        if self._process is None:
            raise ProcessError(f"{self.name} was never started")
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} 127.0.0.1:{self.port} {'running' if self.is_running else 'down'}>"

    def start(self) -> Self:
        """Start and return when the server answers. Does nothing when it runs."""
        if self.is_running:
            return self
        try:
            if self._process is None:
                data_dir = self.data_dir
                self._prepare()
                self._process = ManagedProcess(
                    self._command(),
                    log_path=data_dir / "server.log",
                    env=self._env(),
                    cwd=data_dir,
                    user=self._user(),
                    name=self.name,
                    stop_signal=self.stop_signal,
                    stop_timeout_seconds=self.stop_timeout_seconds,
                )
            self._before_start()
            self._process.start()
            self._process.wait_ready(self.is_ready, timeout=self.start_timeout_seconds)
        except BaseException:
            # A half-started server would outlive the fixture that failed to get it.
            self.kill()
            if self._process is None or self._process.state == "created":
                self.close()
            raise
        return self

    def stop(self) -> None:
        """End it gracefully, keeping port and data."""
        if self._process is not None:
            self._process.stop()
        self._after_end()

    def kill(self) -> None:
        """End it by SIGKILL, keeping port and data."""
        if self._process is not None:
            self._process.kill()
        self._after_end()

    def restart(self) -> Self:
        """`stop`, then `start` on the same port and data."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing answers."""
        self.process.pause()

    def resume(self) -> None:
        """Let a paused server go on."""
        self.process.resume()

    def close(self) -> None:
        """Stop it and remove its data."""
        self.stop()
        if self._data_dir is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
            self._data_dir = None
        self._process = None


def find_program(*names: str, also_in: Sequence[Path] = ()) -> Path | None:
    """The first of the programs on PATH, in the system directories, or in `also_in`."""
    # Users other than root often lack sbin on their PATH, where Debian puts daemons.
    for name in names:
        found = shutil.which(name) or shutil.which(name, path="/usr/local/sbin:/usr/sbin:/sbin")
        if found:
            return Path(found)
    for directory in also_in:
        for name in names:
            if os.access(directory / name, os.X_OK):
                return directory / name
    return None


def missing(server: str, *, looked_for: str, remedy: str) -> ServerMissing:
    """The error for a server that this machine does not have."""
    return ServerMissing(f"{server} is not on this machine: looked for {looked_for}. {remedy}")


def account_for_daemons(*preferred: str) -> str | None:
    """The account for servers that refuse to run as root; None when we are not root."""
    if os.geteuid() != 0:
        return None
    import pwd

    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in (*preferred, "nobody") if name in known), None)


def run_setup(command: Sequence[str | os.PathLike[str]], *, user: str | None, cwd: Path) -> None:
    """Run one preparing command to its end; its output is in the error when it fails."""
    with ManagedProcess(command, log_path=cwd / "setup.log", user=user, cwd=cwd) as process:
        status = process.wait(timeout=60)
        if status != 0:
            raise ProcessError(f"{process.name} failed ({status})\n{process.log_tail()}")


def run_and_read(
    command: Sequence[str | os.PathLike[str]],
    *,
    env: dict[str, str] | None = None,
    stdin: str | None = None,
    timeout: float = 60.0,
) -> str:
    """Run a client command against a server and return its standard output; `stdin` is its input."""
    done = subprocess.run(
        command, env=env, input=stdin, timeout=timeout, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ProcessError(f"{command[0]} failed ({done.returncode})\n{done.stdout}{done.stderr}")
    return done.stdout
