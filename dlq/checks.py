"""System checks of dlq: the findings about settings.DLQ in Django's form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Warning

from hardening.core.findings import Finding, Level

from .conf import read_dlq_settings
from .sealing import problem_with_keys

__all__ = ["KEYS_CODE", "UNENCRYPTED_CODE", "check_deployment", "check_settings", "findings"]

KEYS_CODE = "CH021"
UNENCRYPTED_CODE = "CH022"
_KEYS = 'settings.DLQ["ENCRYPTION_KEYS"]'
_FORMS: dict[Level, Callable[..., CheckMessage]] = {
    Level.INFO: Info,
    Level.WARNING: Warning,
    Level.ERROR: Error,
}


def findings() -> list[Finding]:
    """Everything that is wrong or worth knowing about settings.DLQ."""
    conf, found = read_dlq_settings(getattr(settings, "DLQ", None))
    keys_are_bad = any(finding.where == _KEYS for finding in found)
    if conf.encryption_keys:
        problem = problem_with_keys(conf.encryption_keys)
        if problem is not None:
            what, _, remedy = problem.partition(". ") if ". " in problem else problem.partition(" Make one")
            found.append(
                Finding(code=KEYS_CODE, level=Level.ERROR, what=what, where=_KEYS, remedy=remedy or problem)
            )
    elif not keys_are_bad:
        found.append(
            Finding(
                code=UNENCRYPTED_CODE,
                level=Level.INFO,
                what="no encryption key is set: the bodies of dead letters are stored in clear",
                where=_KEYS,
                remedy='Set DLQ["ENCRYPTION_KEYS"] = (key,) with a Fernet key, or silence dlq.CH022.',
            )
        )
    return found


def check_settings(app_configs: Sequence[AppConfig] | None, **_kwargs: Any) -> list[CheckMessage]:
    """The findings as messages of `manage.py check`, and of every command that runs the checks."""
    return [_message(finding) for finding in findings() if finding.level > Level.INFO]


def check_deployment(app_configs: Sequence[AppConfig] | None, **_kwargs: Any) -> list[CheckMessage]:
    """What is worth knowing before a deployment, and too much at every command: `check --deploy`."""
    return [_message(finding) for finding in findings() if finding.level <= Level.INFO]


def _message(finding: Finding) -> CheckMessage:
    form = _FORMS[finding.level]
    return form(finding.what, hint=finding.remedy, obj=finding.where, id=f"dlq.{finding.code}")
