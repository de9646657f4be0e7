"""Wires hardening into a Django project: every Celery app of the process, and the system checks."""

from __future__ import annotations

import time
from typing import Any

from django.apps import AppConfig

from .core.identity import FIRST_HEADER, first_header, first_moment


class HardeningConfig(AppConfig):
    """The whole installation is this app's name in INSTALLED_APPS."""

    name = "hardening"
    verbose_name = "Celery hardening"

    def ready(self) -> None:
        """Harden the Celery apps that exist and those to come; guard every worker's start."""
        from celery.signals import before_task_publish, celeryd_after_setup, worker_init

        from . import checks  # noqa: F401  (registers itself)
        from .alerts.engine import ALERTS_DUTY
        from .conf import REPORT, load_settings
        from .core.chord_members import offer_chord_members
        from .core.duties import offer_duty
        from .core.successes import offer_successes
        from .intake.garbage import GARBAGE_DUTY
        from .plugin import harden_every_app

        harden_every_app()
        if load_settings()[0].mode != REPORT:
            before_task_publish.connect(_note_first_publish, weak=False, dispatch_uid="hardening.first")
            offer_duty(GARBAGE_DUTY)
            offer_successes("hardening.twins.replays.RecordedSuccesses")
            offer_chord_members("hardening.chord_members.StoredMembers")
            offer_duty(ALERTS_DUTY)
        worker_init.connect(_open_gate, weak=False, dispatch_uid="hardening.gate")
        celeryd_after_setup.connect(_redact_logs, weak=False, dispatch_uid="hardening.logs")


def _note_first_publish(headers: dict[str, Any] | None = None, **_: Any) -> None:
    """The age of the work counts from here. Without it, as from other producers, from its first start."""
    if headers is None or "id" not in headers:
        return
    task_id = str(headers["id"])
    if first_moment(headers.get(FIRST_HEADER), task_id) is None:
        headers[FIRST_HEADER] = first_header(time.time(), task_id)


def _open_gate(**kwargs: Any) -> None:
    from .gate import on_worker_init

    on_worker_init(**kwargs)


def _redact_logs(instance: Any, **_: Any) -> None:
    from . import logs
    from .plugin import hardened

    if not hardened(instance.app).reporting:
        logs.install()
