"""The stage: every server of a run, started here, and the environment that leads the project to them alone.

The broker is reached through a proxy, which can cut all connections. Results and caches have a Redis: the
broker's own where that is Redis, else one of their own. The database is PostgreSQL where this machine has it,
else SQLite.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hardening.testing.errors import ServerMissing
from hardening.testing.servers import LocalServer, PostgresServer, RabbitMQServer, RedisServer
from hardening.testing.tcp_proxy import TcpProxy

from .errors import ChaosError, Unsafe
from .options import Options
from .preflight import MARK, refusals
from .witness import PORT_ENV, WITNESS_ENV

__all__ = ["Stage"]

OWN_SETTINGS = "hardening.chaos.project.settings"
OWN_APP = "hardening.chaos.project"
_SETTINGS_LINE = re.compile(r"DJANGO_SETTINGS_MODULE[\"']\s*,\s*[\"']([\w.]+)[\"']")
_COMMAND_SECONDS = 300.0


class Stage:
    """A context manager: inside, the servers run; after it they and their data are gone, logs are kept."""

    def __init__(self, options: Options, directory: Path) -> None:
        self.options = options
        self.directory = directory
        self.app_name = options.app or OWN_APP
        self.results = RedisServer(append_only=True)
        self.broker: RedisServer | RabbitMQServer = (
            self.results if options.broker == "redis" else RabbitMQServer()
        )
        self.postgres = _postgres(options.database)
        self.said: Mapping[str, Any] = {}
        self._proxy: TcpProxy | None = None
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        try:
            for server in self._servers():
                self._ends.callback(_end, server)
                server.start()
            self._proxy = TcpProxy(self.broker.host, self.broker.port)
            self._ends.callback(self._proxy.close)
            self.said = self._preflight()
            self._make_databases()
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._ends.close()

    def _servers(self) -> list[LocalServer]:
        servers: list[LocalServer] = [self.broker]
        if self.results is not self.broker:
            servers.append(self.results)
        return servers if self.postgres is None else [*servers, self.postgres]

    @property
    def proxy(self) -> TcpProxy:
        """Between everybody and the broker."""
        assert self._proxy is not None
        return self._proxy

    @property
    def broker_url(self) -> str:
        """Through the proxy."""
        return self._broker_url(self.proxy.port)

    @property
    def direct_url(self) -> str:
        """Past the proxy: for looks that a cut shall not disturb."""
        return self._broker_url(self.broker.port)

    @property
    def results_url(self) -> str:
        return self.results.url_for(1)

    @property
    def witness(self) -> Path:
        """The file of the independent log."""
        return self.directory / "witness.jsonl"

    @property
    def env(self) -> dict[str, str]:
        """What is added to the environment of every process of the run."""
        database = (
            {"postgres": self.postgres.port} if self.postgres is not None else {"sqlite": str(self.directory)}
        )
        return {
            "DJANGO_SETTINGS_MODULE": "hardening.chaos.settings",
            "CHAOS_SETTINGS": self._base_settings(),
            "CHAOS_DATABASE": json.dumps(database),
            "CHAOS_CACHE_URL": self.results.url_for(2),
            "CHAOS_VARIANT": self.options.variant,
            "CHAOS_BROKER": self.options.broker,
            "CHAOS_POOL": self.options.pool,
            "CHAOS_LEASE": str(self.options.lease_seconds),
            "CHAOS_AS_CONFIGURED": "1" if self.options.as_configured else "0",
            "CELERY_BROKER_URL": self.broker_url,
            "CELERY_BROKER_READ_URL": self.broker_url,
            "CELERY_BROKER_WRITE_URL": self.broker_url,
            "CELERY_RESULT_BACKEND": self.results_url,
            WITNESS_ENV: str(self.witness),
            PORT_ENV: str(self.proxy.port),
            "PYTHONUNBUFFERED": "1",
        }

    @property
    def whole_env(self) -> dict[str, str]:
        """The environment of a worker."""
        own = {**os.environ, **self.env}
        paths = [str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**own, "PYTHONPATH": os.pathsep.join(paths)}

    def enter_project(self) -> Any:
        """Make this process one of the project's, migrate its databases, and return its app."""
        os.environ.update(self.env)
        if self.postgres is None:
            # It looks often, and must never wait for a lock of a worker that it has stopped itself.
            given = {"sqlite": str(self.directory), "timeout": 1}
            os.environ["CHAOS_DATABASE"] = json.dumps(given)
        sys.path.insert(0, str(Path.cwd()))
        from celery.app.utils import find_app

        app: Any = find_app(self.app_name)
        app.loader.import_default_modules()
        app.set_current()
        app.set_default()
        app.finalize()
        import django
        from django.core.management import call_command

        django.setup()
        for alias in self.said["databases"]:
            call_command("migrate", verbosity=0, skip_checks=True, database=alias)
        return app

    def run(self, *command: str) -> str:
        """Run Python with these arguments in the project's environment; its output. Raises ChaosError."""
        done = subprocess.run(
            [sys.executable, *command],
            env=self.whole_env,
            capture_output=True,
            text=True,
            check=False,
            timeout=_COMMAND_SECONDS,
        )
        if done.returncode:
            raise ChaosError(f"`python {' '.join(command)}` failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def _preflight(self) -> Mapping[str, Any]:
        output = self.run("-m", "hardening.chaos.preflight", self.app_name)
        line = next(line for line in output.splitlines() if line.startswith(MARK))
        said: dict[str, Any] = json.loads(line.removeprefix(MARK))
        ports = [self.proxy.port, self.broker.port, self.results.port]
        if self.postgres is not None:
            ports.append(self.postgres.port)
        wrong = refusals(said, broker_port=self.proxy.port, ports=ports, directory=str(self.directory))
        if wrong:
            raise Unsafe(
                "nothing was sent, because this would not be the kit's servers alone:\n- "
                + "\n- ".join(wrong)
            )
        return said

    def _make_databases(self) -> None:
        if self.postgres is not None:
            import psycopg

            with psycopg.connect(self.postgres.url, autocommit=True) as connection:
                for alias in self.said["databases"]:
                    name = psycopg.sql.Identifier(f"chaos_{alias}")
                    connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(name))

    def _broker_url(self, port: int) -> str:
        if self.options.broker == "redis":
            return f"redis://127.0.0.1:{port}/0"
        return f"amqp://guest:guest@127.0.0.1:{port}//"

    def _base_settings(self) -> str:
        if self.options.app is None:
            return OWN_SETTINGS
        return self.options.settings or _found_settings(self.options.app)


def _end(server: LocalServer) -> None:
    """Nobody needs its data: no farewell."""
    server.kill()
    server.close()


def _postgres(wanted: str) -> PostgresServer | None:
    if wanted == "sqlite":
        return None
    try:
        if find_spec("psycopg") is None:
            raise ServerMissing("psycopg is not installed")
        return PostgresServer()
    except ServerMissing:
        if wanted == "postgres":
            raise
        return None


def _found_settings(app: str) -> str:
    """DJANGO_SETTINGS_MODULE, else what manage.py says, else `settings` beside the app."""
    given = os.environ.get("DJANGO_SETTINGS_MODULE")
    if given and given != "hardening.chaos.settings":
        return given
    manage = Path("manage.py")
    if manage.exists() and (found := _SETTINGS_LINE.search(manage.read_text())):
        return found[1]
    beside = f"{app.partition(':')[0].partition('.')[0]}.settings"
    sys.path.insert(0, str(Path.cwd()))
    if (Path.cwd() / f"{beside.replace('.', '/')}.py").exists():
        return beside
    raise ChaosError("which settings? Give --settings, or set DJANGO_SETTINGS_MODULE")
