"""Schedules that are kept in code: the setting `beat_schedule`, and what Celery puts beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from celery import Celery
from celery.beat import ScheduleEntry
from celery.schedules import crontab, maybe_schedule

from ..due import BadSchedule, check
from ..entry import Entry
from ..policies import Policies, current_policies
from .telling import Broken

__all__ = ["CLEANUP", "CodeSource", "declared"]

CLEANUP = "celery.backend_cleanup"
_HALF_A_DAY = 12 * 3600


class CodeSource:
    """How far they are is in the tick store alone: nothing is written here."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._broken = Broken()
        self._read: dict[str, Any] = {}
        self._policies: Policies | None = None
        self._entries: dict[str, Entry] = {}

    @property
    def broken(self) -> Mapping[str, str]:
        """Those that the last reading left out, and why."""
        return self._broken.all

    def install(self) -> None:
        """Nothing to write anywhere."""

    def entries(self) -> Mapping[str, Entry]:
        """All of them: the same objects again if nothing changed."""
        policies = current_policies()
        if policies is not self._policies or self.changed():
            self._read = dict(self._app.conf.beat_schedule)
            found, broken = declared(self._app)
            self._broken.are(broken)
            self._policies = policies
            self._entries = {name: replace(entry, policy=policies.of(name)) for name, entry in found.items()}
        return self._entries

    def changed(self) -> bool:
        """Whether a schedule was added to the setting, taken out, or replaced."""
        return bool(self._read != self._app.conf.beat_schedule)

    def ran(self, runs: Mapping[str, tuple[float, int]]) -> None:
        """Nobody asks."""


def declared(app: Celery) -> tuple[dict[str, Entry], dict[str, str]]:
    """What the code says, and what is wrong with those that are left out."""
    found: dict[str, Entry] = {}
    broken: dict[str, str] = {}
    scheduled = app.conf.beat_schedule  # Once: the settings are slow to ask.
    for name in [*([] if CLEANUP in scheduled else [CLEANUP]), *scheduled]:
        try:
            said = scheduled.get(name) or _cleanup(app)
            if said is not None:
                found[name] = _entry(app, name, said)
        except Exception as exc:
            # Whatever stands in a setting: it is one schedule's matter.
            broken[name] = exc.why if isinstance(exc, BadSchedule) else f"{type(exc).__name__}: {exc}"
    return found, broken


def _cleanup(app: Celery) -> dict[str, Any] | None:
    """As Celery's scheduler has it."""
    if not app.conf.result_expires or app.backend.supports_autoexpire:
        return None
    return {"task": CLEANUP, "schedule": crontab("0", "4", "*"), "options": {"expires": _HALF_A_DAY}}


def _entry(app: Celery, name: str, said: Any) -> Entry:
    if isinstance(said, ScheduleEntry):
        said = {key: getattr(said, key) for key in ("task", "schedule", "args", "kwargs", "options")}
    task, when = said["task"], maybe_schedule(said["schedule"], said.get("relative", False), app=app)
    if not isinstance(task, str):
        raise BadSchedule(name, f"its task is a {type(task).__name__}, not a name")
    check(when, name)
    options = dict(said.get("options") or {})
    seconds = options.pop("expire_seconds", None)
    if seconds is not None:
        # What django-celery-beat calls it.
        options.setdefault("expires", seconds)
    return Entry(
        name=name,
        task=task,
        when=when,
        args=tuple(said.get("args") or ()),
        kwargs=dict(said.get("kwargs") or {}),
        options=options,
        kept="code",
    )
