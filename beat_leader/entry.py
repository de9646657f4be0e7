"""Entry: one schedule as the leader works with it, wherever it is kept. And the port Source. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

__all__ = ["Entry", "Misfire", "Policy", "Source", "SourceUnavailable"]


class SourceUnavailable(Exception):
    """The schedules cannot be read now; the leader goes on with those it has."""


class Misfire(StrEnum):
    """What becomes of due times that are late by more than `Policy.misfire_seconds`."""

    SKIP = "skip"
    LATEST = "latest"
    """The latest of them is sent, unless one that is not late is sent as well; the others are skipped."""

    ALL = "all"
    """The latest `Policy.most` of them are sent, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What one schedule asks for beside its due times."""

    misfire: Misfire = Misfire.LATEST
    """What becomes of due times that are late by more than `misfire_seconds`: "skip", "latest" (it is sent,
    unless one that is not late is sent as well; the others are skipped) or "all" (the latest `most`)."""

    most: int = 100
    """With ALL: how many at most."""

    misfire_seconds: float = 10.0
    """A due time that is less late than this is sent in any case: a takeover is no misfire."""

    grace_seconds: float | None = None
    """A due time that is later than this is skipped, whatever the policy. None: no bound but the policy's."""

    overlap: bool = True
    """False: a due time is skipped while the task of the one before has not ended."""

    overlap_seconds: float = 86_400.0
    """A task of which nothing was heard for so long does not hold the next one back any longer."""

    expires: bool = True
    """Whether a message without an `expires` of its own gets one: the next due time."""

    ping: str = field(default="", repr=False)
    """URL of a check compatible with Healthchecks; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One schedule. `when` is Celery's schedule object: crontab, interval, solar, clocked, or one's own."""

    name: str
    task: str
    when: Any
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    starts: float | None = None
    """Not due before; seconds since 1970."""

    ends: float | None = None
    """Not due at or after."""

    one_off: bool = False
    """Disabled by its source after it was sent once."""

    anchor: float | None = None
    """From where its due times count if the tick store does not know it yet: its last run under another
    scheduler. None: from when it is first seen."""

    row_id: int | None = None
    """Of its row, where its source has one."""

    kept: str = "code"
    """Where it is kept: "code" or "database"."""


@runtime_checkable
class Source(Protocol):
    """Where schedules are kept. Used by the thread that ticks, and by pages that only look: by those no more
    than `entries`."""

    @property
    def broken(self) -> Mapping[str, str]:
        """Those that the last reading left out, and why: by name. The log was told of each once."""
        ...

    def install(self) -> None:
        """By a new leader before it reads: write what belongs there, such as the schedules of the code.
        Raises SourceUnavailable."""
        ...

    def entries(self) -> Mapping[str, Entry]:
        """All that are enabled, by name: read afresh. Raises SourceUnavailable."""
        ...

    def changed(self) -> bool:
        """Whether it may differ from what `entries` read last: cheap, asked every second or so. Changes that
        it cannot see are found by reading afresh every `BEAT_LEADER["RELOAD_SECONDS"]`."""
        ...

    def ran(self, runs: Mapping[str, tuple[float, int]]) -> None:
        """For people and for other schedulers: name -> (when it was last sent, how often since the last
        call). Fails with a log line only."""
        ...
