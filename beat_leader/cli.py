"""What the beat_leader_* commands share."""

from __future__ import annotations

import getpass
from argparse import ArgumentTypeError
from datetime import UTC, datetime

from celery import Celery
from django.core.management.base import CommandError
from django.utils.timezone import get_current_timezone

from hardening.core.apps import NoCeleryApp, celery_app

__all__ = ["moment", "operator", "positive", "the_app"]


def the_app() -> Celery:
    """The project's Celery app with its tasks. Raises CommandError without one."""
    try:
        app = celery_app()
    except NoCeleryApp as exc:
        raise CommandError(str(exc)) from exc
    app.loader.import_default_modules()
    return app


def moment(seconds: float) -> str:
    """Seconds since 1970 in the site's time zone."""
    return datetime.fromtimestamp(seconds, UTC).astimezone(get_current_timezone()).isoformat(" ", "seconds")


def operator() -> str:
    """Who runs this command, for what is written down."""
    try:
        return f"{getpass.getuser()} (command)"
    except (KeyError, OSError):
        return "command"


def positive(text: str) -> int:
    """A whole number from 1, as the type of an option."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)
