"""The Celery app of the benchmark."""

from __future__ import annotations

import os

from celery import Celery

from hardening.saturation import AcksAtOnce, UnhurriedReads

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bench.project.settings")

app = Celery("bench")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
if os.environ.get("BENCH_VARIANT") == "plain":
    # What lets a gevent worker run at all is no cost of hardening: both have it.
    app.steps["consumer"].update((AcksAtOnce, UnhurriedReads))
