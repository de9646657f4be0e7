"""System checks of beat_leader: what is wrong with its settings, and schedulers that would go past it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from celery import Celery
from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Warning

from hardening.core.apps import NoCeleryApp, celery_app
from hardening.core.findings import Finding, Level

from .choosing import chosen_by_project, is_reporting
from .conf import read_beat_settings

__all__ = ["ANOTHER_SCHEDULER_CODE", "another_scheduler", "check_beat", "settings_findings"]

ANOTHER_SCHEDULER_CODE = "CH042"

_FORMS: dict[Level, Callable[..., CheckMessage]] = {
    Level.INFO: Info,
    Level.WARNING: Warning,
    Level.ERROR: Error,
}


def settings_findings() -> list[Finding]:
    """What is wrong with settings.BEAT_LEADER."""
    return read_beat_settings(getattr(settings, "BEAT_LEADER", None))[1]


def another_scheduler(named: str, where: str) -> Finding:
    """A Beat that would elect nobody, beside those that do."""
    return Finding(
        code=ANOTHER_SCHEDULER_CODE,
        level=Level.ERROR,
        what=f"Beat's scheduler is {named}: it elects no leader, and a second Beat sends everything again",
        where=where,
        remedy=(
            "Remove the setting beat_scheduler (CELERY_BEAT_SCHEDULER) and the option -S/--scheduler: the "
            "schedules of django-celery-beat and of beat_schedule are read as before. To keep that scheduler "
            'set BEAT_LEADER = {"ENABLED": False}.'
        ),
    )


def check_beat(app_configs: Sequence[AppConfig] | None = None, **_: Any) -> list[CheckMessage]:
    """The findings as messages of `manage.py check`."""
    conf, found = read_beat_settings(getattr(settings, "BEAT_LEADER", None))
    app = _app()
    if app is not None and conf.enabled and not is_reporting() and (named := chosen_by_project(app)):
        found.append(another_scheduler(named, "Celery setting beat_scheduler"))
    return [_message(finding) for finding in found]


def _app() -> Celery | None:
    try:
        return celery_app()
    except NoCeleryApp:
        return None


def _message(finding: Finding) -> CheckMessage:
    form = _FORMS[finding.level]
    return form(finding.what, hint=finding.remedy, obj=finding.where, id=f"beat_leader.{finding.code}")
