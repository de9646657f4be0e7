"""What is told of poison, in the log and to receivers: a death, and a message of a worker that is gone."""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery

from hardening.core.events import orphan_recovered, task_died, tell
from hardening.core.identity import identity_of
from hardening.twins.work import task_id_of

from .case import Case, Death
from .death import described, kind_of

__all__ = ["tell_death", "tell_orphan"]

logger = logging.getLogger("hardening")


def tell_death(app: Celery, task: Any, message: Any, case: Case, death: Death, *, limit: float) -> None:
    """A start of a task ended with its process. Never raises."""
    task_id = task_id_of(message)
    count = case.count
    logger.error(
        "task %s[%s] ended with its process (%s), %d of %g times: %s",
        task.name,
        task_id,
        kind_of(death),
        count,
        limit,
        described(death),
        extra={"task_id": task_id, "task_name": task.name, "deaths": count},
    )
    tell(
        task_died,
        app=app,
        task_id=task_id,
        task_name=task.name,
        delivery_key=identity_of(message.headers, task_id).delivery_key,
        how=kind_of(death),
        deaths=count,
        limit=limit,
    )


def tell_orphan(app: Celery, task: Any, message: Any, *, holder: str, found_by: str) -> None:
    """A message came back whose worker is gone. Never raises."""
    tell(
        orphan_recovered,
        app=app,
        task_id=task_id_of(message),
        task_name=task.name,
        holder=holder,
        found_by=found_by,
    )
