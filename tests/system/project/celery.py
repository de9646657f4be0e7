"""The project's Celery app, with one task that is bound before Django starts."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, Task

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.system.project.settings")

app = Celery("project")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.autodiscover_tasks(["tests.system.project"], related_name="retrying")
app.autodiscover_tasks(["tests.system.project"], related_name="leasing")
app.autodiscover_tasks(["tests.system.project"], related_name="stopping")


class Early(Task):
    """Registered, and therefore bound, before any app config is ready."""

    name = "early"

    def run(self, *args: Any) -> None:
        from .effects import hold_and_fail

        hold_and_fail(self.name)


app.register_task(Early())
