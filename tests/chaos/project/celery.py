"""The project's Celery app, and what it tells the test: events of dependencies, failed tasks."""

from __future__ import annotations

import logging
import os
import random
from typing import Any

from billiard.process import current_process
from celery import Celery
from celery.signals import task_failure, worker_process_init

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.chaos.project.settings")

app = Celery("chaos")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


class Events(logging.Handler):
    """One line for each record that carries an event: its time, the event, what it is about."""

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", None)
        if event:
            note(record.created, str(event), str(getattr(record, "dependency", "")))


def note(*parts: object) -> None:
    """Append one line; short appends are atomic."""
    handle = os.open(os.environ["CHAOS_EVENTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, ("\t".join(map(str, parts)) + "\n").encode())
    finally:
        os.close(handle)


logging.getLogger("hardening").addHandler(Events())


@task_failure.connect
def failed_for_good(task_id: str = "", **_: Any) -> None:
    note(0.0, "task_failed", task_id)


@worker_process_init.connect
def seed_the_jitter(**_: Any) -> None:
    """Each process draws the same numbers again in a run with the same seed."""
    index = getattr(current_process(), "index", 0)
    random.seed(f"{os.environ.get('CHAOS_SEED')} {os.environ.get('CHAOS_WORKER')} {index}")


seed_the_jitter()  # Pools without processes of their own send no signal.
