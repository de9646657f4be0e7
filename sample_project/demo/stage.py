"""Everything that the demo starts, and its end: Redis, the receivers, the database, the processes."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from hardening.testing.processes import ManagedProcess
from hardening.testing.servers.redis import RedisServer
from sample_project.demo.errors import DemoError
from sample_project.demo.interrupts import held, refuse_interrupts
from sample_project.demo.pictures import draw_all
from sample_project.demo.progress import say
from sample_project.effects import DIRECTORY_VARIABLE
from sample_project.receivers.http import HttpReceiver
from sample_project.receivers.mended import Mended
from sample_project.receivers.smtp import SmtpReceiver

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = "operator"
READY_SECONDS = 60.0
STOP_SECONDS = 6.0
WEB_PORT, FLOWER_PORT = 8000, 5555
BEATS = 2
_PREFORK = ("worker", "-n", "cpu@%h", "-Q", "celery", "-c", "2", "-E", "-l", "INFO")


class Stage:
    """A context manager: inside, all parts are ready; after it, however it was left, none is there."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.password = secrets.token_urlsafe(9)
        self.effects = data / "effects"
        self.mended = Mended(data / "mended")
        self.redis = RedisServer(append_only=True, data_dir=data / "redis")
        self.http = HttpReceiver(self.mended)
        self.smtp = SmtpReceiver(self.mended)
        self.env = {
            "DJANGO_SETTINGS_MODULE": "sample_project.settings",
            "SHOP_DATA": str(data),
            DIRECTORY_VARIABLE: str(self.effects),
            "SHOP_BROKER_URL": self.redis.url_for(0),
            "SHOP_RESULT_URL": self.redis.url_for(1),
            "SHOP_SMTP_PORT": str(self.smtp.port),
            # A killed process cannot remove its temporary files: they go with the data.
            "TMPDIR": str(data / "tmp"),
        }
        self._processes: list[ManagedProcess] = []
        self._beats: dict[int, ManagedProcess] = {}
        self._ends = ExitStack()

    @property
    def broker_url(self) -> str:
        return self.redis.url_for(0)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        (self.data / "tmp").mkdir()
        say("drawing the product pictures")
        draw_all(self.data / "media" / "pictures")
        say("starting Redis (append-only), a web server and a mail server to talk to")
        for part, end in (
            (self.redis, self._stop_redis),
            (self.http, self.http.stop),
            (self.smtp, self.smtp.stop),
        ):
            self._ends.callback(end)
            with held():
                part.start()
        say("creating the database")
        with held():  # Python loses an interrupt that comes while it is importing.
            self._set_up_django()
        say("starting two workers: prefork for computing, gevent for waiting; and two Beats")
        gevent = ("worker", "-P", "gevent", "-n", "io@%h", "-Q", "io", "-c", "20", "-E", "-l", "INFO")
        self._cpu_worker = self._celery(*_PREFORK, log="worker-cpu")
        workers = self._cpu_worker, self._celery(*gevent, log="worker-io")
        for number in range(BEATS):
            self.start_beat(f"beat-{number + 1}")
        for worker in workers:
            worker.wait_for_log(" ready.", timeout=READY_SECONDS)

    def start_beat(self, log: str) -> None:
        """One more Beat. Which of them leads is their own matter."""
        beat = self._celery("beat", "-l", "INFO", log=log)
        self._beats[beat.pid] = beat

    def kill_beat(self, pid: int) -> None:
        """SIGKILL one of the Beats that were started here."""
        with held():
            beat = self._beats.pop(pid)
            beat.kill()
            self._processes.remove(beat)

    def stop_beats(self) -> None:
        """SIGTERM the Beats; each of them sends nothing more."""
        for pid in [*self._beats]:
            with held():
                beat = self._beats.pop(pid)
                beat.stop(timeout=STOP_SECONDS)
                self._processes.remove(beat)

    def kill_and_restart_cpu_worker(self) -> None:
        """SIGKILL the prefork worker, with all that it runs; start another, as a supervisor would."""
        say("killing the prefork worker in the middle of its work, and starting another")
        with held():
            self._cpu_worker.kill()
            self._processes.remove(self._cpu_worker)
        self._cpu_worker = self._celery(*_PREFORK, log="worker-cpu-again")
        self._cpu_worker.wait_for_log(" ready.", timeout=READY_SECONDS)

    def _set_up_django(self) -> None:
        os.environ.update(self.env)
        import django

        django.setup()
        from django.contrib.auth import get_user_model
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        operators = get_user_model()._default_manager
        operator, _ = operators.get_or_create(
            username=OPERATOR, defaults={"is_staff": True, "is_superuser": True}
        )
        operator.set_password(self.password)
        operator.save()

    def open_doors(self) -> None:
        """Start the admin and Flower. `require_free_doors` tells beforehand whether they can."""
        # From the environment, not the command line, where every user of the machine could read it.
        flower_env = {"FLOWER_BASIC_AUTH": f"{OPERATOR}:{self.password}"}
        web = self._process(
            # --insecure: Django's development server serves the admin's static files although DEBUG is off.
            ["-m", "sample_project.manage", "runserver", f"127.0.0.1:{WEB_PORT}", "--noreload", "--insecure"],
            log="web",
        )
        flower = self._celery(
            "flower", "--address=127.0.0.1", f"--port={FLOWER_PORT}", log="flower", extra_env=flower_env
        )
        for process, port in ((web, WEB_PORT), (flower, FLOWER_PORT)):
            process.wait_ready(partial(is_open, port), timeout=READY_SECONDS, what=f"open port {port}")

    def check(self) -> None:
        """Raises DemoError, with the end of its log, when a part that should run has ended."""
        for process in (*self._processes, self.redis.process):
            if not process.is_running:
                raise DemoError(f"{process.name} has ended ({process.returncode})\n{process.log_tail()}")

    def close(self) -> None:
        """End everything. Not to be interrupted: each part has a few seconds, and is killed after that."""
        refuse_interrupts()
        say("stopping everything")
        with self._ends:
            self._stop_processes()

    def _stop_redis(self) -> None:
        if self.redis.is_running:
            self.redis.process.stop(timeout=STOP_SECONDS)

    def _stop_processes(self) -> None:
        if self._processes:
            with ThreadPoolExecutor(len(self._processes)) as pool:
                list(pool.map(lambda process: process.stop(timeout=STOP_SECONDS), self._processes))

    def _celery(self, *arguments: str, log: str, extra_env: dict[str, str] | None = None) -> ManagedProcess:
        return self._process(
            ["-m", "celery", "-A", "sample_project", *arguments], log=log, extra_env=extra_env
        )

    def _process(
        self, arguments: list[str], *, log: str, extra_env: dict[str, str] | None = None
    ) -> ManagedProcess:
        process = ManagedProcess(
            [sys.executable, *arguments],
            log_path=self.data / "logs" / f"{log}.log",
            env={**os.environ, **self.env, "PYTHONUNBUFFERED": "1", **(extra_env or {})},
            cwd=ROOT,
            name=log,
        )
        self._processes.append(process)
        with held():
            return process.start()


def require_free_doors() -> None:
    """Raises DemoError when someone listens already on a port that an open shop needs."""
    for port, what in ((WEB_PORT, "the admin"), (FLOWER_PORT, "Flower")):
        if is_open(port):
            raise DemoError(
                f"port {port} is taken by another program: {what} needs it. End that program first."
            )


def is_open(port: int) -> bool:
    """Whether someone listens on this port of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
