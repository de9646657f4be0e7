"""Wires hardening into a Django project: every Celery app of the process, and the system checks."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig


class HardeningConfig(AppConfig):
    """The whole installation is this app's name in INSTALLED_APPS."""

    name = "hardening"
    verbose_name = "Celery hardening"

    def ready(self) -> None:
        """Harden the Celery apps that exist and those to come; guard every worker's start."""
        from celery.signals import celeryd_after_setup, worker_init

        from . import checks  # noqa: F401  (registers itself)
        from .plugin import harden_every_app

        harden_every_app()
        worker_init.connect(_open_gate, weak=False, dispatch_uid="hardening.gate")
        celeryd_after_setup.connect(_redact_logs, weak=False, dispatch_uid="hardening.logs")


def _open_gate(**kwargs: Any) -> None:
    from .gate import on_worker_init

    on_worker_init(**kwargs)


def _redact_logs(instance: Any, **_: Any) -> None:
    from . import logs
    from .plugin import hardened

    if not hardened(instance.app).reporting:
        logs.install()
