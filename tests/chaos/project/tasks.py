"""The work: one call of the downstream. The two variants differ in the decorator alone."""

from __future__ import annotations

import os
from typing import Any

import requests
from celery import Task, shared_task

from .settings import VARIANT

OPTIONS: dict[str, Any] = (
    {"dependency": "downstream"}
    if VARIANT == "hardened"
    # What Celery's documentation offers for this; its default limit of 3 retries would lose them all.
    else {"acks_late": True, "autoretry_for": (Exception,), "retry_backoff": True, "max_retries": None}
)


@shared_task(name="deliver", bind=True, **OPTIONS)
def deliver(self: Task) -> None:
    answer = requests.post(
        os.environ["CHAOS_DOWNSTREAM"], headers={"X-Task": str(self.request.id)}, timeout=10
    )
    answer.raise_for_status()
