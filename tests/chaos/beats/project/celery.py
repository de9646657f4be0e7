"""The project's Celery app."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.chaos.beats.project.settings")

app = Celery("chaos beats")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
