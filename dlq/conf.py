"""DlqSettings: every entry of settings.DLQ with its type, unit and default, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed
from django.db import router

from hardening.core.findings import Finding, Level
from hardening.core.settings import read_settings

__all__ = ["SETTINGS_CODE", "DlqSettings", "database_alias", "dlq_settings", "read_dlq_settings"]

SETTINGS_CODE = "CH020"


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqSettings:
    """What settings.DLQ says. Safe with nothing set."""

    database: str | None = None
    """Alias of the database that holds the letters; None: where Django's routers put the model."""

    encryption_keys: tuple[str, ...] = field(default=(), repr=False, metadata={"secret": True})
    """Fernet keys for payloads at rest. The first encrypts, all decrypt; none: stored in clear."""

    ingest_every_seconds: float = 15.0
    """How often each worker looks for letters that were parked on the broker."""

    ingest_batch: int = 100
    """How many parked letters one look takes in at most: the worker's parent must not block long."""

    stale_claim_seconds: float = 60.0
    """After how long a replay that neither ended nor gave up is taken over by the next one."""


def read_dlq_settings(raw: object) -> tuple[DlqSettings, list[Finding]]:
    """The settings, with defaults in place of bad entries, and what is wrong with them."""
    conf, findings = read_settings(DlqSettings, raw, name="DLQ", code=SETTINGS_CODE)
    findings += _impossible(conf)
    return conf, findings


@lru_cache(maxsize=1)
def dlq_settings() -> DlqSettings:
    """The settings of this process, read once."""
    return read_dlq_settings(getattr(settings, "DLQ", None))[0]


def database_alias() -> str:
    """The alias of the database that holds the letters."""
    # Late: the model module reads the settings through this one.
    from .models import DeadLetter

    return dlq_settings().database or router.db_for_write(DeadLetter)


def _impossible(conf: DlqSettings) -> list[Finding]:
    found: list[Finding] = []

    def wrong(key: str, what: str, remedy: str) -> None:
        where = f'settings.DLQ["{key}"]'
        found.append(Finding(code=SETTINGS_CODE, level=Level.ERROR, what=what, where=where, remedy=remedy))

    if conf.database is not None and conf.database not in settings.DATABASES:
        wrong(
            "DATABASE",
            f"there is no database {conf.database!r} in settings.DATABASES",
            f"Name one of: {', '.join(sorted(settings.DATABASES))}; or remove the key.",
        )
    if conf.ingest_every_seconds <= 0:
        wrong(
            "INGEST_EVERY_SECONDS", f"{conf.ingest_every_seconds} is not above zero", "Give seconds above 0."
        )
    if conf.ingest_batch < 1:
        wrong("INGEST_BATCH", f"{conf.ingest_batch} letters are none", "Give a number from 1.")
    if conf.stale_claim_seconds < 30:
        wrong(
            "STALE_CLAIM_SECONDS",
            f"{conf.stale_claim_seconds} s is shorter than one publish may take",
            "Give at least 30 seconds, so that a slow replay is not mistaken for a dead one.",
        )
    return found


def _forget(*, setting: str, **_kwargs: Any) -> None:
    if setting == "DLQ":
        dlq_settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="dlq.conf")
