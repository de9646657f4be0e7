"""The Celery app of the kit's own project."""

from __future__ import annotations

import os

from celery import Celery

from hardening.saturation import AcksAtOnce, UnhurriedReads

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hardening.chaos.project.settings")

app = Celery("chaos")
app.config_from_object("django.conf:settings", namespace="CELERY")
if os.environ.get("CHAOS_VARIANT") == "plain" and os.environ.get("CHAOS_POOL") == "gevent":
    # What lets a gevent worker take messages at speed is no part of the promise: both have it.
    app.steps["consumer"].update((AcksAtOnce, UnhurriedReads))
