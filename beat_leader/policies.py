"""Which policy a schedule has: its row in the admin, over BEAT_LEADER["SCHEDULES"], over the defaults."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, InterfaceError, router

from hardening.core.connection import bounded_connection
from hardening.core.findings import Finding, Level
from hardening.core.settings import read_settings, setting_name

from .clock import steady
from .entry import Misfire, Policy

__all__ = ["COLUMNS", "Policies", "current_policies", "policy_of", "read_patterns"]

logger = logging.getLogger("beat_leader")

_SECONDS = 3
_PAUSE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What one pattern of the settings says; None: nothing."""

    misfire: str | None = None
    most: int | None = None
    misfire_seconds: float | None = None
    grace_seconds: float | None = None
    overlap: bool | None = None
    overlap_seconds: float | None = None
    expires: bool | None = None
    ping: str | None = field(default=None, metadata={"secret": True})


COLUMNS = tuple(each.name for each in fields(_Asked))
"""What a row or a pattern may say: the names of Policy's fields."""

_POSITIVE = ("most", "overlap_seconds")
_NOT_NEGATIVE = ("misfire_seconds", "grace_seconds")

Patterns = tuple[tuple[str, Mapping[str, Any]], ...]


class Policies:
    """Pure. Those of one reading; each name is looked up once."""

    def __init__(self, patterns: Patterns = (), rows: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """`rows`: by the name of the schedule, with values of COLUMNS, None for what is not given."""
        self._patterns = patterns
        self.rows = rows or {}
        self._known: dict[str, Policy] = {}
        self._of_pattern: dict[str, Policy] = {
            pattern: replace(_DEFAULT, **said) for pattern, said in patterns
        }

    def same_as(self, patterns: Patterns, rows: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether these say the same."""
        return self._patterns == patterns and self.rows == rows

    def of(self, name: str) -> Policy:
        """The policy of that schedule. A value of its row that is nonsense is as not given."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._look_up(name)
        return found

    def _look_up(self, name: str) -> Policy:
        base = next(
            (self._of_pattern[each] for each, _ in self._patterns if fnmatchcase(name, each)), _DEFAULT
        )
        row = self.rows.get(name)
        return base if row is None else replace(base, **_given(row))


def read_patterns(raw: Mapping[str, Any]) -> tuple[Patterns, list[Finding]]:
    """What BEAT_LEADER["SCHEDULES"] says, and what is wrong with it; a wrong value is as not given."""
    from .conf import SETTINGS_CODE

    patterns, findings = [], []
    for pattern, said in raw.items():
        place = f'BEAT_LEADER["SCHEDULES"]["{pattern}"]'
        asked, wrong = read_settings(_Asked, said, name=place, code=SETTINGS_CODE)
        values = {name: getattr(asked, name) for name in COLUMNS}
        wrong += [_nonsense(place, name, SETTINGS_CODE) for name in _bad(values)]
        patterns.append((str(pattern), _given(values)))
        findings += wrong
    return tuple(patterns), findings


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    bad = set(_bad(values))
    given = {name: values[name] for name in COLUMNS if values.get(name) is not None and name not in bad}
    if "misfire" in given:
        given["misfire"] = Misfire(given["misfire"])
    return given


def _bad(values: Mapping[str, Any]) -> Iterable[str]:
    misfire = values.get("misfire")
    if misfire is not None and misfire not in list(Misfire):
        yield "misfire"
    for name in _POSITIVE:
        if values.get(name) is not None and values[name] <= 0:
            yield name
    for name in _NOT_NEGATIVE:
        if values.get(name) is not None and values[name] < 0:
            yield name


def _nonsense(place: str, name: str, code: str) -> Finding:
    remedy = {
        "misfire": f"Give one of {', '.join(repr(str(each)) for each in Misfire)}.",
        **dict.fromkeys(_POSITIVE, "Give a number above 0."),
        **dict.fromkeys(_NOT_NEGATIVE, "Give 0 or a number above."),
    }[name]
    return Finding(
        code=code,
        level=Level.ERROR,
        what=f"no such {setting_name(name)} is possible",
        where=f'settings.{place}["{setting_name(name)}"]',
        remedy=remedy,
    )


_DEFAULT = Policy()


class _Book:
    """The policies in force in this process. Rows that cannot be read are those of the last reading."""

    def __init__(self) -> None:
        self._now = Policies()
        self._not_before = 0.0

    def read(self) -> Policies:
        """The same object as before if nothing changed."""
        from .conf import beat_settings

        patterns = read_patterns(beat_settings().schedules)[0]
        rows = self._now.rows
        if steady() >= self._not_before:
            try:
                rows = _read_rows()
            except (DatabaseError, InterfaceError, ImproperlyConfigured, OSError) as exc:
                # Policies wait for a while: a database that is away shall not hold each reading up.
                self._not_before = steady() + _PAUSE_SECONDS
                logger.warning("policies of schedules cannot be read: %s: %s", type(exc).__name__, exc)
        if not self._now.same_as(patterns, rows):
            self._now = Policies(patterns, rows)
        return self._now


def current_policies() -> Policies:
    """Of all schedules, the rows of the admin read afresh. Never raises."""
    return _book.read()


def policy_of(name: str) -> Policy:
    """Of one schedule, read afresh."""
    return current_policies().of(name)


def _read_rows() -> dict[str, Mapping[str, Any]]:
    from .conf import beat_settings

    if not apps.is_installed("beat_leader"):
        return {}
    from .models import SchedulePolicy

    alias = beat_settings().database or router.db_for_read(SchedulePolicy)
    with bounded_connection(alias, _SECONDS):
        rows = SchedulePolicy.objects.using(alias).values("schedule", *COLUMNS)
        return {row["schedule"]: {name: row[name] for name in COLUMNS} for row in rows}


_book = _Book()
