"""Tasks beside messages that never become one, and the task that a later deploy brings."""

from __future__ import annotations

import os
from typing import Any

from celery import shared_task

from .effects import record


@shared_task(name="intaking.served")
def served(value: Any = None, **kwargs: Any) -> Any:
    record(f"served {value}")
    return value


@shared_task(name="intaking.joined")
def joined(parts: Any) -> Any:
    record("joined")
    return parts


@shared_task(name="intaking.told")
def told(task_id: str) -> None:
    """An errback of the old kind, which is sent as a task."""
    record(f"told {task_id}")


if os.environ.get("TEST_DEPLOYED"):

    @shared_task(name="intaking.brought")
    def brought(value: Any = None) -> Any:
        record(f"brought {value}")
        return value
