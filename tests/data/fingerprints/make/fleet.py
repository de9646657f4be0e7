"""One deployment at work: real messages to a real worker, and the letters it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from celery import Celery

from hardening.core.letter import DeadLetter, load_letter
from hardening.testing.ports import LOOPBACK, free_port

from .case import Case
from .deployments import Deployment
from .odd import send_odd
from .plan import Wanted
from .services import Services

__all__ = ["letters_of"]

_PATIENCE = 60.0
"""Seconds without a new letter after which those that are missing are given up."""


def letters_of(
    deployment: Deployment,
    python: Path,
    root: Path,
    services: Services,
    wishes: Sequence[Wanted],
    database: int,
) -> dict[str, DeadLetter]:
    """Send what is wanted to a worker of this deployment; the letters by the ids of their tasks."""
    letters = root.parent / "letters"
    url = services.redis.url_for(database)
    environment = _environment(deployment, services, letters, url, root)
    for alias in ("default", "stock"):
        command = [
            str(python),
            "-m",
            "django",
            "migrate",
            "--run-syncdb",
            "--verbosity",
            "0",
            "--skip-checks",
        ]
        subprocess.run([*command, "--database", alias], check=True, env=environment, cwd=root)
    app = Celery("sender", broker=url, set_as_current=False)
    for wish in wishes:
        _send(app, wish)
    command = [str(python), "-m", "celery", "-A", "shop", "worker", "-n", deployment.worker, "-c", "3"]
    options = ["--without-mingle", "--without-gossip", "-l", "WARNING"]
    with (root.parent / "worker.log").open("wb") as log:
        worker = subprocess.Popen([*command, *options], env=environment, cwd=root, stdout=log, stderr=log)
        try:
            return _collected(letters, {wish.task_id for wish in wishes})
        finally:
            worker.terminate()
            try:
                worker.wait(30)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def _send(app: Celery, wish: Wanted) -> None:
    case = wish.case
    if not isinstance(case, Case):
        send_odd(app, case, wish.task_id, wish.values)
        return
    options: dict[str, Any] = {}
    if case.label.endswith("/expired"):
        options["expires"] = datetime.now(UTC) - timedelta(seconds=wish.values.number(1, 900))
    app.send_task(case.task, kwargs=case.make(wish.values), task_id=wish.task_id, **options)


def _collected(path: Path, ids: set[str]) -> dict[str, DeadLetter]:
    found: dict[str, DeadLetter] = {}
    last = time.monotonic()
    while ids - found.keys() and time.monotonic() - last < _PATIENCE:
        time.sleep(0.2)
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        now = {letter.task_id: letter for letter in map(load_letter, (x for x in lines if x.endswith(b"\n")))}
        if len(now) > len(found):
            found, last = now, time.monotonic()
    return found


def _environment(
    deployment: Deployment, services: Services, letters: Path, url: str, root: Path
) -> Mapping[str, str]:
    databases = {
        "stock": services.postgres.django_database(),
        "archive": {**services.postgres.django_database(), "HOST": LOOPBACK, "PORT": str(free_port())},
    }
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL")}
    return {
        **kept,
        "HOME": str(root),
        "PYTHONPATH": str(root),
        "PYTHONDONTWRITEBYTECODE": "1",
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "C_FORCE_ROOT": "1",
        "SHOP_BROKER_URL": url,
        "SHOP_DATABASES": json.dumps(databases),
        "SHOP_SMTP_PORT": str(services.smtp_port),
        "SHOP_SERVICE_URL": services.http_url,
        "SHOP_TLS_PORT": str(services.tls_port),
        "SHOP_LETTERS": str(letters),
        "SHOP_RELEASE": deployment.release,
    }
