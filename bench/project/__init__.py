"""The same Django project twice: with our apps, and without."""

from .celery import app

__all__ = ["app"]
