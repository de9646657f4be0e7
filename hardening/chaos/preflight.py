"""Before the first message: what would the project's own app talk to? A process in the workers' environment.

It connects to nothing. It prints one line of JSON, and the run goes on only if every address in it is one
that the kit started (`refusals`, pure).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

__all__ = ["MARK", "refusals", "report"]

MARK = "chaos-preflight:"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def refusals(said: Mapping[str, Any], *, broker_port: int, ports: Sequence[int], directory: str) -> list[str]:
    """Why nothing may be sent; empty where the app talks to the kit's servers alone.

    `ports` are all that the kit listens on, `directory` is where its SQLite files lie.
    """
    wrong = []
    if said["settings"] != "hardening.chaos.settings":
        wrong.append(
            f"Django runs with the settings {said['settings']}: the project sets DJANGO_SETTINGS_MODULE over "
            "the environment; use os.environ.setdefault"
        )
    for name in ("broker_read", "broker_write"):
        host, port = said[name]
        if host not in _LOOPBACK or port != broker_port:
            wrong.append(f"the app's {name} connection goes to {host}:{port}, not to 127.0.0.1:{broker_port}")
    if said["ssl"]:
        wrong.append("broker_use_ssl is set, and the kit's broker has no TLS: unset it for this run")
    url = urlsplit(said["results"])
    if url.scheme != "disabled" and (url.hostname not in _LOOPBACK or url.port not in ports):
        wrong.append(f"results would go to {url.hostname}:{url.port}")
    for alias, (engine, host, port, name) in said["databases"].items():
        in_directory = engine.endswith("sqlite3") and str(name).startswith(directory)
        on_server = host in _LOOPBACK and port.isdigit() and int(port) in ports
        if not in_directory and not on_server:
            wrong.append(f"database {alias!r} would be {engine} {name} at {host}:{port}")
    return wrong


def report(app_name: str) -> dict[str, Any]:
    """What the app says of itself, with Django and all task modules loaded."""
    from celery.app.utils import find_app

    app: Any = find_app(app_name)
    app.loader.import_default_modules()
    app.finalize()
    from django.apps import apps
    from django.conf import settings

    reading, writing = app.connection_for_read(), app.connection_for_write()
    return {
        "app": repr(app),
        "settings": os.environ.get("DJANGO_SETTINGS_MODULE", ""),
        "broker_read": [reading.hostname, reading.port],
        "broker_write": [writing.hostname, writing.port],
        "ssl": bool(app.conf.broker_use_ssl),
        "results": str(app.conf.result_backend or "disabled://"),
        "queue": str(app.conf.task_default_queue),
        "queues": sorted(app.amqp.queues),
        "databases": {
            alias: [
                entry.get("ENGINE", ""),
                entry.get("HOST", ""),
                str(entry.get("PORT", "")),
                str(entry.get("NAME", "")),
            ]
            for alias, entry in settings.DATABASES.items()
        },
        "hardened": apps.is_installed("hardening"),
        "letters": apps.is_installed("dlq"),
    }


if __name__ == "__main__":
    print(MARK + json.dumps(report(sys.argv[1])))
