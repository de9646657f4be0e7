"""System checks of dlq: the findings about settings.DLQ in Django's form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Warning

from hardening.core.findings import Finding, Level

from .conf import dlq_settings, read_dlq_settings
from .sealing import problem_with_keys

__all__ = [
    "KEYS_CODE",
    "RETENTION_CODE",
    "UNENCRYPTED_CODE",
    "check_deployment",
    "check_settings",
    "findings",
    "retention_finding",
]

KEYS_CODE = "CH021"
UNENCRYPTED_CODE = "CH022"
RETENTION_CODE = "CH032"
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


def retention_finding() -> Finding | None:
    """That nothing is ever deleted: for a deployment, and for a banner. None: a retention is set."""
    if dlq_settings().retention_rules.any:
        return None
    return Finding(
        code=RETENTION_CODE,
        level=Level.WARNING,
        what="no retention is set: dead letters are kept for ever, and the store only grows",
        where='settings.DLQ["RETENTION"]',
        remedy='Say how long, as {"replayed": "90 d", "discarded": "90 d"}, or silence dlq.CH032.',
    )


def check_settings(app_configs: Sequence[AppConfig] | None, **_kwargs: Any) -> list[CheckMessage]:
    """The findings as messages of `manage.py check`, and of every command that runs the checks."""
    return [_message(finding) for finding in findings() if finding.level > Level.INFO]


def check_deployment(app_configs: Sequence[AppConfig] | None, **_kwargs: Any) -> list[CheckMessage]:
    """What is worth knowing before a deployment, and too much at every command: `check --deploy`."""
    found = [finding for finding in findings() if finding.level <= Level.INFO]
    retention = retention_finding()
    return [_message(finding) for finding in (*found, *([retention] if retention else []))]


def _message(finding: Finding) -> CheckMessage:
    form = _FORMS[finding.level]
    return form(finding.what, hint=finding.remedy, obj=finding.where, id=f"dlq.{finding.code}")
