"""A private MariaDB server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hardening.testing.ports import first_answer
from hardening.testing.servers.base import LocalServer, account_for_daemons, find_program, missing, run_setup

DATABASE = "hardening"


class MariaDBServer(LocalServer):
    """MariaDB of the system; user `root` without a password, an empty database `hardening`."""

    name = "mariadb"

    def __init__(
        self, *, extra_args: Sequence[str] = (), data_dir: Path | None = None, port: int | None = None
    ) -> None:
        """`extra_args` as on mariadbd's command line (`--transaction-isolation=...`)."""
        self._server, self._installer = mariadb_programs()
        self._extra_args = extra_args
        self._account = account_for_daemons("mysql")
        super().__init__(data_dir=data_dir, port=port)

    @property
    def url(self) -> str:
        return f"mysql://root@{self.host}:{self.port}/{DATABASE}"

    def django_database(self) -> dict[str, object]:
        """An entry for Django's `DATABASES`."""
        return {
            "ENGINE": "django.db.backends.mysql",
            "NAME": DATABASE,
            "USER": "root",
            "HOST": self.host,
            "PORT": str(self.port),
            "OPTIONS": {"charset": "utf8mb4"},
        }

    def is_ready(self) -> bool:
        # Byte 5 of its greeting is the protocol version, 10; an error packet has 255 there.
        return first_answer(self.port)[4:5] == b"\x0a"

    def _user(self) -> str | None:
        return self._account

    def _prepare(self) -> None:
        init_file = self.data_dir / "init.sql"
        init_file.write_text(f"CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4;\n")
        init_file.chmod(0o644)
        if (self.data_dir / "data" / "mysql").exists():
            return
        run_setup(
            [
                self._installer,
                "--no-defaults",
                f"--datadir={self.data_dir / 'data'}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-log-bin",
            ],
            user=self._account,
            cwd=self.data_dir,
        )

    def _command(self) -> Sequence[str | os.PathLike[str]]:
        return [
            self._server,
            "--no-defaults",
            f"--datadir={self.data_dir / 'data'}",
            f"--bind-address={self.host}",
            f"--port={self.port}",
            f"--socket={self.data_dir / 's'}",
            f"--pid-file={self.data_dir / 'pid'}",
            f"--init-file={self.data_dir / 'init.sql'}",
            "--character-set-server=utf8mb4",
            # The log still outlives a killed process; only a crash of the machine could lose commits.
            "--innodb-flush-log-at-trx-commit=2",
            "--skip-name-resolve",
            "--skip-log-bin",
            *self._extra_args,
        ]


def mariadb_programs() -> tuple[Path, Path]:
    """The server and the program that makes its first data, or `ServerMissing`."""
    server = find_program("mariadbd")
    installer = find_program("mariadb-install-db")
    if server is None or installer is None:
        raise missing(
            "MariaDB",
            looked_for="mariadbd and mariadb-install-db on PATH",
            remedy="Install the Debian package mariadb-server.",
        )
    return server, installer
