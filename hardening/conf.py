"""The settings of hardening: every name, type, unit, default and reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings as django_settings

from .core.findings import Finding, Level
from .core.parking import DEAD_LETTER_QUEUE
from .core.settings import read_settings

__all__ = ["ENFORCE", "REPORT", "HardeningSettings", "load_settings"]

ENFORCE = "enforce"
REPORT = "report"
_CODE = "CH001"


@dataclass(frozen=True, slots=True, kw_only=True)
class HardeningSettings:
    """What a project may set in `settings.HARDENING`. Safe with nothing set at all."""

    mode: str = ENFORCE
    """"enforce", or "report": change nothing, stop nothing, and say what would be done."""

    app: str | None = None
    """Dotted path of the Celery app that commands, admin and replay act on. None: the default app."""

    early_ack: Mapping[str, Any] = field(default_factory=dict)
    """Task-name pattern -> reason. Those tasks are acknowledged before they run: a crash loses them."""

    dead_letter_sink: Mapping[str, Any] | None = None
    """{"BACKEND": dotted path, "OPTIONS": {...}}. None: the sink of an installed app, else the broker."""

    dead_letter_queue: str = DEAD_LETTER_QUEUE
    """The durable broker queue where letters wait while their store is down."""

    release: str = ""
    """The project's release, kept with each letter."""

    redact: tuple[str, ...] = ()
    """Parameter names and dotted paths to hide, on top of the built-in ones."""


def load_settings() -> tuple[HardeningSettings, list[Finding]]:
    """The project's settings and what is wrong with them."""
    raw = getattr(django_settings, "HARDENING", None)
    settings, findings = read_settings(HardeningSettings, raw, name="HARDENING", code=_CODE)
    if settings.mode not in (ENFORCE, REPORT):
        findings.append(
            Finding(
                code=_CODE,
                level=Level.ERROR,
                what=f"unknown mode {settings.mode!r}; {ENFORCE!r} is used",
                where='settings.HARDENING["MODE"]',
                remedy=f'Set "{ENFORCE}" or "{REPORT}".',
            )
        )
    for pattern, reason in settings.early_ack.items():
        if not isinstance(reason, str) or not reason.strip():
            findings.append(
                Finding(
                    code="CH003",
                    level=Level.ERROR,
                    what=f"the opt-out for tasks {pattern!r} gives no reason",
                    where=f'settings.HARDENING["EARLY_ACK"][{pattern!r}]',
                    remedy="Write as its value why a crash may lose these tasks, or remove it.",
                )
            )
    return settings, findings
