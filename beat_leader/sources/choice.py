"""Which source is in force: BEAT_LEADER["SOURCE"], else the database if django-celery-beat is installed."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from celery import Celery
from django.apps import apps

from hardening.core.errors import HardeningError
from hardening.core.every_app import unproxied

from ..conf import beat_settings
from ..entry import Source
from .code import CodeSource

__all__ = ["NoSuchSource", "chosen_source"]

_known: WeakKeyDictionary[Celery, tuple[str, Source]] = WeakKeyDictionary()


class NoSuchSource(HardeningError):
    """BEAT_LEADER["SOURCE"] names none, or one that is not installed."""


def chosen_source(app: Celery) -> Source:
    """One for each app and process. Nothing is read or connected to yet."""
    app = unproxied(app)
    name = _name()
    known = _known.get(app)
    if known is None or known[0] != name:
        known = _known[app] = (name, _made(name, app))
    return known[1]


def _name() -> str:
    asked, installed = beat_settings().source, apps.is_installed("django_celery_beat")
    if asked == "auto":
        return "database" if installed else "code"
    if asked not in ("code", "database"):
        raise NoSuchSource(f'SOURCE = {asked!r} is none of "auto", "code" and "database"')
    if asked == "database" and not installed:
        raise NoSuchSource('SOURCE = "database" needs django_celery_beat in INSTALLED_APPS')
    return asked


def _made(name: str, app: Celery) -> Source:
    if name == "code":
        return CodeSource(app)
    from .database import DatabaseSource

    return DatabaseSource(app)
