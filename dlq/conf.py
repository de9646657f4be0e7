"""DlqSettings: every entry of settings.DLQ with its type, unit and default, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed
from django.db import router

from hardening.core.findings import Finding, Level
from hardening.core.settings import read_settings

from .access_rules import read_task_permissions
from .retention.rules import RetentionRules, read_retention
from .thresholds import AlertThresholds

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

    count_every_seconds: float = 5.0
    """How often each worker looks for letters that were not counted in their group yet."""

    project_packages: tuple[str, ...] = ()
    """Top-level packages of the project's own code, where a failure has its place. None: all code outside
    site-packages and Python's own library. The package that a task is named after is one in any case. After a
    change, `manage.py dlq_regroup --all` groups the letters that are there again."""

    stale_claim_seconds: float = 60.0
    """After how long a replay that neither ended nor gave up is taken over by the next one. So long is also
    the lease of who runs an operation: another goes on with it when it was not renewed."""

    replay_limit: int = 5
    """How often the same work is replayed: a letter that came back so often is left alone, unless it is asked
    for. It has a cause that replaying does not mend."""

    operate_every_seconds: float = 5.0
    """How often each worker gives running operations a turn: it sends, asks for outcomes, closes."""

    lost_after_seconds: float = 86_400.0
    """After how long a message that was sent again, and of which nothing was heard, counts as lost. Longer
    than the longest wait in a queue and the longest run together."""

    approval_above: int | None = None
    """An operation on more letters than this needs the approval of somebody else. None: none does."""

    retention: Mapping[str, Any] | None = None
    """How long letters are kept, by state: `{"replayed": "90 d", "discarded": "90 d"}`. What is not named is
    kept for ever. Open letters are only ever discarded, and only with a reason: `{"open": {"after": "365 d",
    "reason": "..."}}`. `"operations"`: items of closed operations, by default as long as the longest of the
    first two."""

    task_permissions: Mapping[str, Any] = field(default_factory=dict)
    """Who may act on letters of which tasks: `{"billing.*": "shop.handle_billing"}`. Users without the
    permission cannot act on them; with `{"permission": "shop.handle_billing", "hidden": True}` they do not
    see them either. Of several patterns that fit, each asks for its permission."""

    alerts: Mapping[str, Any] = field(default_factory=dict)
    """From when on people are told of letters: see the table below."""

    @property
    def retention_rules(self) -> RetentionRules:
        """`retention`, without what is wrong in it."""
        return read_retention(self.retention)[0]

    @property
    def thresholds(self) -> AlertThresholds:
        """`alerts`, with defaults in place of bad entries."""
        return _thresholds(self.alerts)[0]


def read_dlq_settings(raw: object) -> tuple[DlqSettings, list[Finding]]:
    """The settings, with defaults in place of bad entries, and what is wrong with them."""
    conf, findings = read_settings(DlqSettings, raw, name="DLQ", code=SETTINGS_CODE)
    findings += [*_impossible(conf), *_parts(conf), *_impossible_packages(conf)]
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


def _thresholds(raw: Mapping[str, Any]) -> tuple[AlertThresholds, list[Finding]]:
    read, found = read_settings(AlertThresholds, raw, name='DLQ["ALERTS"]', code=SETTINGS_CODE)
    # Of numbers only: what is no number was found above.
    bad = [
        each.name
        for each in fields(read)
        if isinstance(value := getattr(read, each.name), (int, float))
        and value is not True
        and value is not False
        and value <= 0
    ]
    found += [
        Finding(
            code=SETTINGS_CODE,
            level=Level.ERROR,
            what=f"{getattr(read, name)} is not above zero",
            where=f'settings.DLQ["ALERTS"]["{name.upper()}"]',
            remedy="Give a number above 0, or None: that condition is not looked at then.",
        )
        for name in bad
    ]
    defaults = AlertThresholds()
    return replace(read, **{name: getattr(defaults, name) for name in bad}), found


def _parts(conf: DlqSettings) -> list[Finding]:
    """What is wrong within entries that are dicts themselves."""
    wrong = [("RETENTION", each) for each in read_retention(conf.retention)[1]]
    wrong += [("TASK_PERMISSIONS", each) for each in read_task_permissions(conf.task_permissions)[1]]
    found = [
        Finding(
            code=SETTINGS_CODE,
            level=Level.ERROR,
            what=each.what,
            where=f'settings.DLQ["{name}"]["{each.key}"]',
            remedy=each.remedy,
        )
        for name, each in wrong
    ]
    return found + _thresholds(conf.alerts)[1]


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
    if conf.ingest_batch < 1:
        wrong("INGEST_BATCH", f"{conf.ingest_batch} letters are none", "Give a number from 1.")
    if conf.stale_claim_seconds < 30:
        wrong(
            "STALE_CLAIM_SECONDS",
            f"{conf.stale_claim_seconds} s is shorter than one publish may take",
            "Give at least 30 seconds, so that a slow replay is not mistaken for a dead one.",
        )
    if conf.replay_limit < 1:
        wrong("REPLAY_LIMIT", f"{conf.replay_limit} replays are none", "Give a number from 1.")
    for name in (
        "ingest_every_seconds",
        "count_every_seconds",
        "operate_every_seconds",
        "lost_after_seconds",
    ):
        if getattr(conf, name) <= 0:
            wrong(name.upper(), f"{getattr(conf, name)} is not above zero", "Give seconds above 0.")
    if conf.approval_above is not None and conf.approval_above < 0:
        wrong(
            "APPROVAL_ABOVE",
            f"{conf.approval_above} is below zero",
            "Give a number of letters, or remove the key: then no operation needs approval.",
        )
    return found


def _impossible_packages(conf: DlqSettings) -> list[Finding]:
    return [
        Finding(
            code=SETTINGS_CODE,
            level=Level.ERROR,
            what=f"{package!r} is not the name of a top-level package",
            where='settings.DLQ["PROJECT_PACKAGES"]',
            remedy="Give names such as 'shop', without dots and folders.",
        )
        for package in conf.project_packages
        if not package.isidentifier()
    ]


def _forget(*, setting: str, **_kwargs: Any) -> None:
    if setting == "DLQ":
        dlq_settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="dlq.conf")
