"""Tells what becomes of the tasks of schedules: Beat puts schedule and due time into their messages' headers.

A message without that header pays for one look into a dict.
"""

from __future__ import annotations

from django.dispatch import Signal

from .core.events import scheduled_began, scheduled_succeeded, tell
from .core.identity import BEAT_HEADER, identity_of
from .execution import Execution

__all__ = ["tell_began", "tell_succeeded"]


def tell_began(execution: Execution) -> None:
    """Its body is about to start."""
    _tell(scheduled_began, execution)


def tell_succeeded(execution: Execution) -> None:
    """Its work is done."""
    _tell(scheduled_succeeded, execution)


def _tell(event: Signal, execution: Execution) -> None:
    headers = execution.delivery.headers
    if headers and BEAT_HEADER in headers:
        tell(
            event,
            scheduled=str(headers[BEAT_HEADER]),
            task_id=execution.task_id,
            task_name=execution.task.name,
            delivery_key=identity_of(headers, execution.task_id).delivery_key,
        )
