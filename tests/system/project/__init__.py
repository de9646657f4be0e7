"""A Django project whose tasks come in every style and fail in every way."""

from .celery import app

__all__ = ["app"]
