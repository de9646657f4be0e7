"""Four classic mistakes. Plain Celery would log and forget them; here each ends as a kept dead letter."""

from __future__ import annotations

import time
from typing import Any

from celery import Task, shared_task

from sample_project.effects import effect


class Report:
    """Something that JSON cannot say."""


@shared_task(bind=True, time_limit=30)
def total_of(self: Task[Any, Any], lines: list[dict[str, Any]]) -> int:
    """A bug: a line without a price is a TypeError. Nothing retries it."""
    with effect(self):
        return sum(line["price"] * line["quantity"] for line in lines)


@shared_task(bind=True, time_limit=30)
def make_report(self: Task[Any, Any], month: str) -> Report:
    """A result that cannot be stored: the work is done, and its outcome is lost."""
    with effect(self):
        return Report()


@shared_task(bind=True, time_limit=2)
def import_catalogue(self: Task[Any, Any], pages: int) -> int:
    """Longer than its own time limit: the worker kills the process that runs it."""
    with effect(self):
        for _ in range(pages):
            time.sleep(1)
        return pages


@shared_task(bind=True, autoretry_for=(LookupError,), default_retry_delay=1, max_retries=3, time_limit=30)
def wait_for_parcel(self: Task[Any, Any], parcel: str) -> str:
    """Polling by retry, for something that never comes: the retries run out."""
    with effect(self):
        raise LookupError(f"parcel {parcel} has not arrived")
