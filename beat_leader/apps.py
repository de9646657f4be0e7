"""Wires beat_leader into Django: its scheduler for every Celery app, the gate at Beat's start, the checks."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core.checks import register
from django.utils.translation import gettext_lazy as _

__all__ = ["BeatLeaderConfig"]


class BeatLeaderConfig(AppConfig):
    """Celery Beat without doubles and without silence."""

    name = "beat_leader"
    verbose_name = _("Beat leader")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register what is above. Nothing is connected to, and nothing starts, before a Beat ticks."""
        from celery.signals import beat_init, worker_init

        from hardening.core.alerts import offer_condition
        from hardening.core.every_app import on_every_app

        from .checks import check_beat
        from .choosing import choose_ours
        from .conditions import conditions
        from .conf import beat_settings
        from .outcomes import watch_outcomes

        register(check_beat, "celery")
        if not beat_settings().enabled:
            return
        on_every_app(choose_ours)
        watch_outcomes()
        for condition in conditions():
            offer_condition(condition)
        beat_init.connect(_open_gate, weak=False, dispatch_uid="beat_leader.gate")
        worker_init.connect(_open_gate_of_worker, weak=False, dispatch_uid="beat_leader.gate")


def _open_gate(sender: Any, **kwargs: Any) -> None:
    from .gate import on_beat_init

    on_beat_init(sender)


def _open_gate_of_worker(sender: Any, **kwargs: Any) -> None:
    if (getattr(sender, "options", None) or {}).get("beat"):
        from .gate import on_worker_with_beat

        on_worker_with_beat(sender)
