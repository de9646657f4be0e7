"""Tell a customer's server what happened, by webhook."""

from __future__ import annotations

from typing import Any

import requests
from celery import Task, shared_task

from hardening import Permanent
from sample_project.effects import effect

CONNECT_SECONDS, READ_SECONDS = 2.0, 1.0
RETRY_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 60.0
GONE = {requests.codes.not_found, requests.codes.gone}
BUSY = {requests.codes.too_many_requests, requests.codes.service_unavailable}


@shared_task(bind=True, max_retries=2, time_limit=30)
def deliver_webhook(self: Task[Any, Any], url: str, event: dict[str, Any]) -> int:
    """Post the event and return the status of the answer.

    - The address does not exist (404, 410): Permanent, no retry can help.
    - The server is busy (429, 503): retried, no sooner than its Retry-After says.
    - No answer in time, or the connection broke: retried. The event may have arrived all the same, so it
      carries the order's name, by which the receiver can tell that it has it already.
    """
    with effect(self):
        try:
            answer = requests.post(url, json=event, timeout=(CONNECT_SECONDS, READ_SECONDS))
        except (requests.Timeout, requests.ConnectionError) as exc:
            raise self.retry(exc=exc, countdown=RETRY_SECONDS * 2**self.request.retries) from exc
        if answer.status_code in GONE:
            raise Permanent(f"{url} does not exist ({answer.status_code})")
        if answer.status_code in BUSY:
            busy = requests.HTTPError(f"{url} is busy ({answer.status_code})", response=answer)
            raise self.retry(exc=busy, countdown=_retry_after(answer))
        answer.raise_for_status()
        return answer.status_code


def _retry_after(answer: requests.Response) -> float:
    """The seconds that the server asked for. The header's other form, a date, is not understood here."""
    asked = answer.headers.get("Retry-After", "")
    return min(float(asked), LONGEST_WAIT_SECONDS) if asked.isdecimal() else RETRY_SECONDS
