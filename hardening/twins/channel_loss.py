"""What a worker does when the connection or channel of RabbitMQ dies: its unfinished work is marked at once.

The broker has all unacknowledged messages back by now and gives them to whom it likes. What runs here gets
marks, so that others hold its redelivery back, and this worker adopts it. What has succeeded here lately is
recorded: its acknowledgement may have been lost on its way. The broker delivers no more than the prefetch
count beyond what it has seen acknowledged, so no more can be lost. What has not begun here never will: a mark
that it has would hold the redelivery back for as long as this worker lives. It is noted as given back: nobody
died of it (see `poison.returned`).

The window that stays: another worker that is given a message before its mark is written, some milliseconds
after the broker's decision, starts it. It runs twice then, and the second success is counted.
"""

from __future__ import annotations

import logging
from typing import Any

from celery.worker import state

from hardening.poison.returned import note_returned
from hardening.shutdown.request import still_open

from .accepting import take_in_accepted
from .here import unfinished
from .keeping import are_processes
from .watch import twins_for

__all__ = ["connection_lost", "marks_kept_while_connecting"]

logger = logging.getLogger("hardening")

LATELY_SECONDS = 300.0
"""Longer than two heartbeats, after which both ends know that the connection is dead."""

_MOST_RECORDED = 500


def connection_lost(consumer: Any) -> None:
    """Called before Celery cleans up after a lost connection or channel, in the worker's main loop."""
    twins = twins_for(consumer.app)
    take_in_accepted(consumer.pool)
    cancelled = _are_cancelled(consumer.app)
    running = [] if cancelled else [each for each in unfinished() if each.time_start]
    for request in running:
        if request.twin is None:  # Known here before anything is asked of the store.
            request.twin = twins.begin(request)
    for request in running:
        twins.watch(request)
    # Celery asks for fewer after a lost connection.
    limit = max(getattr(consumer.qos, "value", 0), consumer.max_prefetch_count)
    twins.remember(twins.successes.since(LATELY_SECONDS, most=min(limit, _MOST_RECORDED)))
    twins.forget_dropped(lambda request: _begins_later(consumer.pool, request))
    note_returned(
        consumer.app,
        [each.message for each in (*unfinished(), *still_open()) if cancelled or not each.time_start],
        judged=True,
    )
    if running:
        logger.warning(
            "the connection is lost while %d tasks run: they go on, and take over their messages if those "
            "come back to this worker",
            len(running),
        )


def marks_kept_while_connecting(connection: Any, app: Any) -> Any:
    """The connection, renewing the marks of this worker while it is tried.

    On prefork the main loop, whose timer does it otherwise, waits for the broker meanwhile.
    """
    ensure = connection.ensure_connection
    twins = twins_for(app)

    def ensure_connection(*args: Any, callback: Any = None, **options: Any) -> Any:
        def each_second() -> None:
            if callback is not None:
                callback()
            twins.renew_when_due()

        return ensure(*args, callback=each_second, **options)

    connection.ensure_connection = ensure_connection
    return connection


def _begins_later(pool: Any, request: Any) -> bool:
    """Whether a request that has not begun will all the same: threads and greenlets keep what they have."""
    return not are_processes(pool) and request in state.reserved_requests


def _are_cancelled(app: Any) -> bool:
    """Whether Celery ends what runs now, as the project has asked for: it shall run again."""
    return bool(app.conf.worker_cancel_long_running_tasks_on_connection_loss)
