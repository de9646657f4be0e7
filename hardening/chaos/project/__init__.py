"""The Django project of `make chaos`: hardened, or plain by CHAOS_VARIANT=plain."""

from .celery import app

__all__ = ["app"]
