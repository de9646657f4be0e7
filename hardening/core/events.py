"""Events: what may be watched. Nothing of the promise rests on a receiver, and none can break anything.

They are Django signals; connect to them in a worker's process, as in an AppConfig.ready. Each is sent with
keyword arguments of plain values, after what it tells is durable.
"""

from __future__ import annotations

import logging
from typing import Any

from django.dispatch import Signal

__all__ = [
    "letter_kept",
    "orphan_recovered",
    "replay_succeeded",
    "scheduled_began",
    "scheduled_succeeded",
    "task_died",
    "task_quarantined",
    "tell",
]

logger = logging.getLogger("hardening")

orphan_recovered = Signal()
"""A message of a silent worker went back to its queue: task_id, task_name, holder."""

task_died = Signal()
"""A process died while it ran a task: task_id, task_name, delivery_key, how, deaths, limit."""

task_quarantined = Signal()
"""A task that kills its process is not started again: task_id, task_name, delivery_key, deaths, limit."""

letter_kept = Signal()
"""A dead letter was kept: task_id, task_name, delivery_key, replay_number, reason; scheduled: as below, or
empty."""

scheduled_began = Signal()
"""The body of a schedule's task is about to start: scheduled ("due time in milliseconds since 1970, name of
the schedule"), task_id, task_name, delivery_key. Told by the process that runs it, once for each start."""

scheduled_succeeded = Signal()
"""The same, for one that did its work. Told before the message is acknowledged: twice if it comes again."""

replay_succeeded = Signal()
"""A message that was sent again for a letter, or a copy of it, did its work: letter_id, task_id, task_name,
delivery_key, replay_number, how: "returned", or "ignored" for one that ended itself by `Ignore`, as one does
that is replaced by several tasks. Told by the process that ran the body, before the message is acknowledged:
told twice where it is delivered again."""


def tell(event: Signal, **facts: Any) -> None:
    """Tell every receiver. Returns whatever they raise: that is logged, and the others are told."""
    if not event.receivers:
        return
    for receiver, answer in event.send_robust(sender=None, **facts):
        if isinstance(answer, Exception):
            logger.error("a receiver of an event failed: %r", receiver, exc_info=answer)
