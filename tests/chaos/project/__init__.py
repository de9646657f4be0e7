"""One project whose task calls a service over HTTP: hardened, or on plain Celery."""

from .celery import app

__all__ = ["app"]
