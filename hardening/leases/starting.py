"""Starting: no work begins under a lease that may have run out.

A worker that was paused, or cut off from Redis, for longer than a lease holds messages that others may run
by now. What runs cannot be taken back. What has not begun waits: until the keeper has renewed its lease,
and then it begins; or until it is known that others have it, and then it is dropped here. Redis that is
away altogether makes it wait as well, for the two cannot be told apart.
"""

from __future__ import annotations

import time
from typing import Any

from celery.worker.state import task_ready

from .holdings import Holdings

__all__ = ["dropped", "is_postponed", "start_postponed"]

MARGIN_SECONDS = 0.5
"""A lease counts as over this much earlier: work begins a moment after it was asked for."""


def is_postponed(request: Any) -> bool:
    """Whether a request must wait, or is dropped; asked right before it begins. It is seen to then."""
    channel: Any = request.message.channel
    holdings: Holdings | None = getattr(channel, "holdings", None)
    if holdings is None:
        return False
    tag = request.message.delivery_tag
    held = holdings.held(tag)
    if held is None:
        return False  # Acknowledged before it runs.
    if held.lost:
        dropped(holdings, request)
        return True
    if time.monotonic() - held.leased_from < channel.lease.seconds - MARGIN_SECONDS:
        return False
    holdings.postponed[tag] = request
    return True


def dropped(holdings: Holdings, request: Any) -> bool:
    """Whether a request that has not begun was dropped, for others have its message."""
    if not request.claim_for_return():
        return False
    task_ready(request)
    holdings.drop(request.message.delivery_tag)
    return True


def start_postponed(consumer: Any) -> None:
    """Hand those over that wait; who has to wait still, does."""
    postponed = consumer.holdings.postponed
    for tag in list(postponed):
        request = postponed.pop(tag, None)
        if request is not None and not request.is_given_back:
            consumer.on_task_request(request)
