"""BeatSettings: every entry of settings.BEAT_LEADER with its type, unit and default, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from hardening.core.findings import Finding, Level
from hardening.core.settings import read_settings

from .policies import read_patterns
from .term import Timings

__all__ = ["SETTINGS_CODE", "BeatSettings", "beat_settings", "read_beat_settings"]

SETTINGS_CODE = "CH041"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatSettings:
    """What settings.BEAT_LEADER says. Safe with nothing set."""

    enabled: bool = True
    """False: `celery beat` is left as it is; nothing is elected, watched or told."""

    lock: Mapping[str, Any] = field(default_factory=dict)
    """`{"BACKEND": dotted path, "OPTIONS": {...}}` of the leader lock. Empty: in Redis where Redis is the
    broker, else in the database."""

    store: Mapping[str, Any] = field(default_factory=dict)
    """The same for ticks and signs of life: `{"BACKEND": "beat_leader.stores.database"}` or
    `"beat_leader.stores.redis"`, the module that has `Ticks` and `Register`. Empty: as for the lock."""

    lease_seconds: float = 6.0
    """After so long without a renewal another Beat may lead."""

    renew_seconds: float = 2.0
    """Between two renewals: at most a third of the lease."""

    margin_seconds: float = 1.0
    """So long before its lease ends a leader stops sending."""

    stuck_seconds: float = 60.0
    """A leader whose tick does not end for so long resigns, and another takes over."""

    source: str = "auto"
    """Where schedules are kept: "code" (`beat_schedule`), "database" (django-celery-beat, where those of the
    code are written to, as its own scheduler does it), or "auto": database where django-celery-beat is
    installed."""

    reload_seconds: float = 30.0
    """All schedules are read afresh so often: bulk updates and raw SQL are noticed within this time, other
    changes within two seconds."""

    schedules: Mapping[str, Any] = field(default_factory=dict)
    """What schedules ask for, by name or pattern of names, the first that fits: `{"reports.*": {"MISFIRE":
    "skip", "GRACE_SECONDS": 600, "OVERLAP": False, "PING": "https://..."}}`. A policy of a schedule in the
    admin goes before it."""

    ping: str = field(default="", metadata={"secret": True})
    """URL of a check compatible with Healthchecks that the leader pings every `ping_seconds`."""

    ping_seconds: float = 60.0
    """Between two pings of the leader."""

    heartbeat_file: str | None = None
    """Where a Beat writes its sign of life for `python -m beat_leader.probe`. None: a file for each process,
    in `beat_leader-UID` below the temporary directory of the system. "": nowhere."""

    keep_days: float = 30.0
    """How long rows of due times are kept,"""

    keep_rows: int = 1_000
    """and how many of each schedule."""

    database: str | None = None
    """Alias of the database for what is kept in one; None: where Django's routers put it."""

    @property
    def timings(self) -> Timings:
        """Of the lease."""
        return Timings(
            lease_seconds=self.lease_seconds,
            renew_seconds=self.renew_seconds,
            margin_seconds=self.margin_seconds,
        )


def read_beat_settings(raw: object) -> tuple[BeatSettings, list[Finding]]:
    """The settings, with defaults in place of bad entries, and what is wrong with them."""
    conf, findings = read_settings(BeatSettings, raw, name="BEAT_LEADER", code=SETTINGS_CODE)
    findings += [
        Finding(
            code=SETTINGS_CODE,
            level=Level.ERROR,
            what=problem,
            where="settings.BEAT_LEADER",
            remedy="Correct LEASE_SECONDS, RENEW_SECONDS or MARGIN_SECONDS; 6, 2 and 1 are the defaults.",
        )
        for problem in conf.timings.problems()
    ]
    findings += read_patterns(conf.schedules)[1]
    return conf, findings


@lru_cache(maxsize=1)
def beat_settings() -> BeatSettings:
    """The settings of this process, read once."""
    return read_beat_settings(getattr(settings, "BEAT_LEADER", None))[0]


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "BEAT_LEADER":
        beat_settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="beat_leader.conf")
