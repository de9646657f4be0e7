"""Reaching every Celery app of the process: those that exist, and those that come later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import celery._state
from celery import Celery

__all__ = ["on_every_app", "on_settings_of", "unproxied"]

# Private, and without types: see hardening.private.
_state: Any = celery._state


def on_every_app(reach: Callable[[Celery], object]) -> None:
    """Call it with each app that exists now, and each that is finalized later: perhaps more than once."""
    _state.connect_on_app_finalize(reach)
    for app in list(_state._get_active_apps()):
        reach(unproxied(app))


def on_settings_of(app: Celery, write: Callable[[Celery], object]) -> None:
    """Call it when the app's settings were read, now if they are, and again whenever they are read anew."""

    def read(sender: Celery, **_: Any) -> None:
        if sender is app:
            write(app)

    app.on_after_configure.connect(read, weak=False)
    state: Any = app
    if state.configured:
        write(app)


def unproxied(app: Any) -> Celery:
    """The app itself, where one has a proxy for it."""
    get = getattr(app, "_get_current_object", None)
    found: Celery = get() if get is not None else app
    return found
