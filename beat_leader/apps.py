"""Registers the system check of beat_leader; nothing else."""

from __future__ import annotations

from django.apps import AppConfig


class BeatLeaderConfig(AppConfig):
    """Celery Beat without doubles and without silence."""

    name = "beat_leader"
    verbose_name = "Beat leader"

    def ready(self) -> None:
        """Register the checks."""
        from . import checks  # noqa: F401  (registers itself)
