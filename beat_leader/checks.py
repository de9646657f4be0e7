"""The system check that tells a team with a schedule what this release does not do for it yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Warning, register

from hardening.core.apps import NoCeleryApp, celery_app

__all__ = ["check_single_beat"]


@register("celery")
def check_single_beat(app_configs: Sequence[AppConfig] | None = None, **_: Any) -> list[CheckMessage]:
    """Warn where a schedule exists: two Beats send everything twice, and nothing here stops them yet."""
    try:
        scheduled = bool(celery_app().conf.beat_schedule) or apps.is_installed("django_celery_beat")
    except NoCeleryApp:
        return []
    if not scheduled:
        return []
    return [
        Warning(
            "this release of beat_leader elects no leader: a second Beat sends every periodic task again",
            hint="Run exactly one Beat process, with one replica and a Recreate-like update strategy.",
            id="beat_leader.CH040",
        )
    ]
