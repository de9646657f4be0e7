"""What management commands of several apps share."""

from __future__ import annotations

import getpass
from argparse import ArgumentTypeError

from celery import Celery
from django.core.management.base import CommandError

from .apps import NoCeleryApp, celery_app

__all__ = ["app_with_tasks", "operator", "positive"]


def app_with_tasks() -> Celery:
    """The project's Celery app, with the modules that a worker imports. Raises CommandError without one."""
    try:
        app = celery_app()
    except NoCeleryApp as exc:
        raise CommandError(str(exc)) from exc
    app.loader.import_default_modules()
    return app


def operator() -> str:
    """Who runs the command, for the record."""
    try:
        return f"command line: {getpass.getuser()}"
    except (KeyError, OSError):  # A container without an entry for this user.
        return "command line"


def positive(text: str) -> int:
    """A whole number from 1, as the type of an option."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)
