"""Wires dlq into Django and hardening: offers its sink and its duty, registers its checks; nothing else."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import register
from django.utils.translation import gettext_lazy as _

from hardening.core.duties import Duty, offer_duty
from hardening.core.sink import offer_sink

__all__ = ["DlqConfig"]


class DlqConfig(AppConfig):
    name = "dlq"
    verbose_name = _("Dead letters")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from .checks import check_deployment, check_settings
        from .conf import dlq_settings
        from .ingest import ingest_duty

        register(check_settings, "celery")
        register(check_deployment, "celery", deploy=True)
        offer_sink("dlq.sink.DatabaseSink")
        offer_duty(
            Duty(name="dlq.ingest", every_seconds=dlq_settings().ingest_every_seconds, run=ingest_duty)
        )
