"""Django system checks: what would stop a worker, shown by `manage.py check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from celery import Celery
from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, Info, Warning, register

from .core.apps import NoCeleryApp, celery_app
from .core.findings import Finding, Level

__all__ = ["check_hardening", "messages_of"]

_KINDS = {Level.INFO: Info, Level.WARNING: Warning, Level.ERROR: Error}
TAG = "celery"


def messages_of(findings: Sequence[Finding], *, prefix: str) -> list[CheckMessage]:
    """Findings as Django's check messages; silenced as Django's are, by id."""
    return [
        _KINDS[f.level](f"{f.what} (where: {f.where})", hint=f.remedy, id=f"{prefix}.{f.code}")
        for f in findings
    ]


_importing: list[Celery] = []


@register(TAG)
def check_hardening(app_configs: Sequence[AppConfig] | None = None, **_: Any) -> list[CheckMessage]:
    """Everything that the worker's gate would find."""
    from .audit import audit
    from .plugin import hardened

    try:
        app = celery_app()
    except NoCeleryApp as exc:
        finding = Finding(
            code="CH011",
            level=Level.WARNING,
            what=f"this process would publish to Celery's default broker: {exc}",
            where='the project\'s __init__.py, or settings.HARDENING["APP"]',
            remedy="Import the Celery app in the project's __init__.py (from .celery import app).",
        )
        return messages_of([finding], prefix="hardening")
    if _importing:  # Celery's Django fix-up runs the checks again while it imports the tasks.
        return []
    _importing.append(app)
    try:
        app.loader.import_default_modules()
    finally:
        _importing.clear()
    findings = audit(app)
    if hardened(app).reporting:
        # An error would stop every command of the project, and report mode stops nothing.
        findings = [replace(f, level=min(f.level, Level.WARNING)) for f in findings]
    return messages_of(findings, prefix="hardening")
