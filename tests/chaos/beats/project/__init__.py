"""A project whose schedules are due every second or so; its task says that it ran."""

from .celery import app

__all__ = ["app"]
