"""Which Celery app commands, admin and replay act on."""

from __future__ import annotations

from contextlib import suppress
from threading import RLock
from typing import Any, cast
from weakref import WeakSet

import celery._state
from celery import Celery
from django.conf import settings
from django.utils.module_loading import import_string

from .errors import HardeningError

__all__ = ["NoCeleryApp", "celery_app", "loaded_app"]

_loaded: WeakSet[Celery] = WeakSet()
_loading = RLock()


class NoCeleryApp(HardeningError):
    """This process has no Celery app of the project's, only Celery's brokerless fall-back."""


def celery_app() -> Celery:
    """The app named by HARDENING["APP"], else the project's default app.

    Raises NoCeleryApp where Celery would silently fall back to an app without a broker: a web
    process whose project package does not import its Celery app.
    """
    named = (getattr(settings, "HARDENING", None) or {}).get("APP")
    if named:
        try:
            found = import_string(named.replace(":", "."))
        except ImportError as exc:
            raise NoCeleryApp(f'HARDENING["APP"] = {named!r} cannot be imported: {exc}') from exc
        if not isinstance(found, Celery):
            raise NoCeleryApp(f'HARDENING["APP"] = {named!r} is not a Celery app')
        return found
    # The public `current_app` would create the brokerless fall-back here instead of telling us.
    state: Any = celery._state
    if state.default_app is None:
        raise NoCeleryApp(
            "no Celery app in this process: import it in the project's __init__.py "
            '(from .celery import app) or set HARDENING["APP"] = "proj.celery.app"'
        )
    return cast(Celery, state.get_current_app())


def loaded_app(app: Celery) -> Celery:
    """The app, with the tasks that it would have in a worker. Loaded once: Django is checked each time.

    Threads of a web server that come at once wait for the first: half loaded it would lack tasks. The
    registry is asked for, which finalizes the app: everybody takes Celery's two locks in that order then.
    """
    with _loading:
        if app not in _loaded:
            assert app.tasks is not None
            # A module that cannot be imported here may be so in the worker: what is registered is known.
            with suppress(Exception):
                app.loader.import_default_modules()
            _loaded.add(app)
    return app
