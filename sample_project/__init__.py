"""A small shop with real jobs: what a project looks like with celery-hardening installed."""

from sample_project.celery import app as celery_app

__all__ = ["celery_app"]
