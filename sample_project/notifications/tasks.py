"""Tell a customer's server what happened, by webhook."""

from __future__ import annotations

from typing import Any

import requests
from celery import Task, shared_task

from sample_project.effects import effect

CONNECT_SECONDS, READ_SECONDS = 2.0, 1.0


@shared_task(bind=True, time_limit=30)
def deliver_webhook(self: Task[Any, Any], url: str, event: dict[str, Any]) -> int:
    """Post the event and return the status of the answer.

    Nothing here catches an error: whether it may pass, and how long to wait, is read from the status, the
    Retry-After header or the broken connection. After a timeout the event may have arrived all the same, so
    it carries the order's name, by which the receiver can tell that it has it already.
    """
    with effect(self):
        answer = requests.post(url, json=event, timeout=(CONNECT_SECONDS, READ_SECONDS))
        answer.raise_for_status()
        return answer.status_code
