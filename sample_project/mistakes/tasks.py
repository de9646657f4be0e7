"""Six classic mistakes. Plain Celery would log and forget five, and repeat one for ever; here each ends as a
kept dead letter."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from celery import Task, shared_task

from hardening import RetryLater
from sample_project.effects import effect

POLL_SECONDS = 0.2


class Report:
    """Something that JSON cannot say."""


class SupplierMumbled(Exception):
    """An error of the shop's own, of which no rule says whether it may pass."""


@shared_task(bind=True, time_limit=30)
def total_of(self: Task[Any, Any], lines: list[dict[str, Any]]) -> int:
    """A bug: a line without a price is a TypeError, and the same line fails in the same place again."""
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


@shared_task(bind=True, max_retries=3, time_limit=30)
def wait_for_parcel(self: Task[Any, Any], parcel: str) -> str:
    """Polling by retry, for something that never comes: the retries run out."""
    with effect(self):
        raise RetryLater(POLL_SECONDS, f"parcel {parcel} has not arrived")


@shared_task(bind=True, time_limit=30)
def ask_supplier(self: Task[Any, Any], order: str) -> str:
    """An error that no rule knows: a few tries, then the letter says that a rule is missing."""
    with effect(self):
        raise SupplierMumbled(f"what does the supplier mean by {order}?")


@shared_task(bind=True, time_limit=30)
def read_barcode(self: Task[Any, Any], picture: str) -> str:
    """A native library that crashes: the process ends, and nothing in Python can catch that."""
    with effect(self):
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(POLL_SECONDS)
        return picture
