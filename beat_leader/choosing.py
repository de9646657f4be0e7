"""Our scheduler for every app whose project names none: `celery beat` needs no option and no setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

from celery import Celery
from celery.app.defaults import DEFAULTS
from django.conf import settings

from hardening.core.every_app import on_settings_of
from hardening.core.starting import given_by_user

__all__ = ["DEFAULT_SCHEDULER", "OURS", "choose_ours", "chosen_by_project", "is_reporting", "on_command_line"]

OURS = "beat_leader.scheduler:LeaderScheduler"
_ALIAS = "leader"
"""What `-S leader` means, by an entry point of the package."""

_SETTING = "beat_scheduler"
_defaults: Any = DEFAULTS
DEFAULT_SCHEDULER: str = _defaults[_SETTING]

_reached: WeakSet[Celery] = WeakSet()


def choose_ours(app: Celery) -> None:
    """Idempotent. Nothing is changed in report mode, nor where the project chose another scheduler."""
    if app not in _reached and not is_reporting():
        _reached.add(app)
        on_settings_of(app, _write)


def chosen_by_project(app: Celery) -> str:
    """The scheduler that the project's settings name and that is not ours; empty: none."""
    found = app.conf.get(_SETTING) or DEFAULT_SCHEDULER
    return "" if found in (DEFAULT_SCHEDULER, OURS, _ALIAS) else str(found)


def is_reporting() -> bool:
    """Whether HARDENING["MODE"] lets nothing be changed or stopped."""
    configured = getattr(settings, "HARDENING", None)
    return isinstance(configured, Mapping) and configured.get("MODE") == "report"


def _write(app: Celery) -> None:
    if chosen_by_project(app):
        return
    conf: Any = app.conf
    conf[_SETTING] = OURS
    beat = app.__dict__.get("Beat")
    if beat is not None:
        # `celery beat` reads the setting before it sets up Django: its Beat, of this app alone, has read
        # Celery's default already. It builds its service afterwards.
        beat.Service = _service(beat.Service)


def _service(plain: Any) -> Any:
    if getattr(plain, "chooses_leader", False):
        return plain

    class Service(plain):  # type: ignore[misc]
        """Takes Celery's default for what the setting says now; an option of the command line stays."""

        chooses_leader = True

        def __init__(self, app: Celery, *args: Any, scheduler_cls: Any = None, **kwargs: Any) -> None:
            if scheduler_cls in (None, DEFAULT_SCHEDULER) and not on_command_line():
                scheduler_cls = OURS
            super().__init__(app, *args, scheduler_cls=scheduler_cls, **kwargs)

    return Service


def on_command_line() -> bool:
    """Whether who started this process named a scheduler."""
    return given_by_user("scheduler")
