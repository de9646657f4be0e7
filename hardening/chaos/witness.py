"""The witness: each start and end of a body, and each publish from a worker, as a line of a file of its own.

A line is one O_APPEND write, which SIGKILL leaves whole or undone, and it depends on neither the broker nor
the database under test. The kit's own tasks write theirs in their bodies; for all others the module is given
to the workers with `-I`, and listens to Celery's signals. There it also refuses, as the last safeguard, to
let a worker start whose broker is not the kit's.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from celery import signals

from hardening.core.identity import KEY_HEADER

__all__ = ["APP_ENV", "OWN", "PORT_ENV", "WITNESS_ENV", "key_of", "refuse_another_broker", "write"]

WITNESS_ENV = "CHAOS_WITNESS"
PORT_ENV = "CHAOS_BROKER_PORT"
APP_ENV = "CHAOS_APP"
OWN = "hardening.chaos."
"""How the names of the kit's own tasks begin."""

EX_CONFIG = 78


def write(what: str, key: str, **facts: Any) -> None:
    """Append one line; nothing where there is no file to write to."""
    path = os.environ.get(WITNESS_ENV)
    if not path:
        return
    fact = {
        "what": what,
        "key": key,
        "at": round(time.time(), 4),
        "pid": os.getpid(),
        "parent": os.getppid(),
        **facts,
    }
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, json.dumps(fact).encode() + b"\n")
    finally:
        os.close(handle)


def key_of(request: Any) -> str:
    """The delivery key of what runs."""
    return str(getattr(request, KEY_HEADER, None) or (getattr(request, "headers", None) or {}).get(KEY_HEADER)
               or request.id)  # fmt: skip


def _began(task: Any = None, **_: Any) -> None:
    if not task.name.startswith(OWN):
        write(
            "start", key_of(task.request), attempt=task.request.retries, worker=_worker(task), task=task.name
        )


def _succeeded(sender: Any = None, **_: Any) -> None:
    if not sender.name.startswith(OWN):
        write("end", key_of(sender.request), worker=_worker(sender), task=sender.name)


def _publishes(headers: Any = None, body: Any = None, **_: Any) -> None:
    _published("publish", headers)


def _has_published(headers: Any = None, **_: Any) -> None:
    _published("published", headers)


def _published(what: str, headers: Any) -> None:
    headers = headers or {}
    name = str(headers.get("task") or "")
    if headers.get("id") and not name.startswith((OWN, "celery.")):
        write(what, str(headers.get(KEY_HEADER) or headers["id"]), task=name)


def _worker(task: Any) -> str:
    return str(task.request.hostname or "")


def refuse_another_broker(sender: Any = None, **_: Any) -> None:
    """SystemExit passes through a signal, and nothing is connected yet."""
    expected = os.environ.get(PORT_ENV)
    if expected is None:
        return
    for connection in (sender.app.connection_for_read(), sender.app.connection_for_write()):
        if (connection.hostname, str(connection.port)) != ("127.0.0.1", expected):
            print(
                f"chaos: this worker would talk to {connection.hostname}:{connection.port}, "
                f"and not to the kit's broker at 127.0.0.1:{expected}: it does not start",
                flush=True,
            )
            raise SystemExit(EX_CONFIG)


def _ready(**_: Any) -> None:
    write("ready", "")


if os.environ.get(WITNESS_ENV):
    signals.worker_ready.connect(_ready, weak=False, dispatch_uid="chaos.ready")
    signals.task_prerun.connect(_began, weak=False, dispatch_uid="chaos.began")
    signals.task_success.connect(_succeeded, weak=False, dispatch_uid="chaos.succeeded")
    signals.before_task_publish.connect(_publishes, weak=False, dispatch_uid="chaos.publishes")
    signals.after_task_publish.connect(_has_published, weak=False, dispatch_uid="chaos.published")
    signals.worker_init.connect(refuse_another_broker, weak=False, dispatch_uid="chaos.broker")
