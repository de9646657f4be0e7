"""A project on RabbitMQ needs no redis-py: nothing that every worker loads imports it."""

from __future__ import annotations

import subprocess
import sys

NEEDED_BY_EVERY_WORKER = (
    "hardening.apps",
    "hardening.gate",
    "hardening.request",
    "hardening.reception",
    "hardening.worker",
    "hardening.leases.consumer",
    "hardening.checks",
)


def test_a_worker_on_rabbitmq_loads_without_redis_py() -> None:
    code = (
        "import sys; sys.modules['redis'] = None\n"
        "import django; django.setup()\n"
        "from importlib import import_module\n"
        "from hardening.reception import STEPS\n"
        f"for name in {NEEDED_BY_EVERY_WORKER!r} + STEPS: import_module(name)\n"
        "assert sys.modules['redis'] is None\n"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        timeout=60,
        env={"DJANGO_SETTINGS_MODULE": "tests.settings", "PATH": "", "CELERY_BROKER_URL": "amqp://"},
    )
