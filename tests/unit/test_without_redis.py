"""A project on RabbitMQ needs no redis-py: nothing that every worker loads imports it."""

from __future__ import annotations

import subprocess
import sys

import pytest

NEEDED_BY_EVERY_WORKER = (
    "hardening.apps",
    "hardening.gate",
    "hardening.request",
    "hardening.reception",
    "hardening.worker",
    "hardening.leases.consumer",
    "hardening.checks",
)


def run_without(*modules: str, code: str) -> None:
    """In a process of its own, which finds none of these modules."""
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules.update(dict.fromkeys({modules!r}))\n{code}"],
        check=True,
        timeout=60,
        env={"DJANGO_SETTINGS_MODULE": "tests.settings", "PATH": "", "CELERY_BROKER_URL": "amqp://"},
    )


def test_a_worker_on_rabbitmq_loads_without_redis_py() -> None:
    run_without(
        "redis",
        code="import django; django.setup()\n"
        "from importlib import import_module\n"
        "from hardening.reception import STEPS\n"
        f"for name in {NEEDED_BY_EVERY_WORKER!r} + STEPS: import_module(name)\n"
        "assert sys.modules['redis'] is None\n",
    )


@pytest.mark.parametrize("absent", [("redis",), ("redis", "packaging")], ids=["redis-py", "the extra"])
def test_what_only_the_redis_transport_needs_is_not_missed_without_it(absent: tuple[str, ...]) -> None:
    run_without(
        *absent,
        code="import django; django.setup()\n"
        "from hardening.private import version_findings\n"
        "found = [each.what for each in version_findings()]\n"
        "assert not found, found\n",
    )
