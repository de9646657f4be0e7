"""Wires dlq into Django and hardening: offers its sink, duties, conditions; registers its checks; no more."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import register
from django.utils.translation import gettext_lazy as _

from hardening.core.alerts import offer_condition
from hardening.core.duties import Duty, offer_duty
from hardening.core.events import replay_succeeded
from hardening.core.sink import offer_sink

__all__ = ["DlqConfig"]


class DlqConfig(AppConfig):
    name = "dlq"
    verbose_name = _("Dead letters")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from .checks import check_deployment, check_settings
        from .conditions import conditions
        from .conf import dlq_settings
        from .groups.duty import TURN_SECONDS, groups_duty
        from .ingest import ingest_duty
        from .operations.duty import operations_duty
        from .operations.outcomes import succeeded
        from .retention.duty import TURN_SECONDS as RETENTION_TURN_SECONDS
        from .retention.duty import retention_duty

        register(check_settings, "celery")
        register(check_deployment, "celery", deploy=True)
        offer_sink("dlq.sink.DatabaseSink")
        offer_duty(Duty(name="dlq.groups", every_seconds=TURN_SECONDS, run=groups_duty))
        offer_duty(
            Duty(name="dlq.ingest", every_seconds=dlq_settings().ingest_every_seconds, run=ingest_duty)
        )
        offer_duty(
            Duty(
                name="dlq.operations",
                every_seconds=dlq_settings().operate_every_seconds,
                run=operations_duty,
            )
        )
        offer_duty(Duty(name="dlq.retention", every_seconds=RETENTION_TURN_SECONDS, run=retention_duty))
        for condition in conditions():
            offer_condition(condition)
        replay_succeeded.connect(succeeded, dispatch_uid="dlq.operations")
