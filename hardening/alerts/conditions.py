"""The conditions of hardening itself: dependencies that are down, letters that no store takes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from celery import Celery

from hardening.conf import load_settings
from hardening.core.alerts import Condition, Fact, Severity, conditions
from hardening.core.broker import confirming_connection
from hardening.core.parking import parking_queue, refused_queue
from hardening.retries import outage
from hardening.retries.durations import text_of
from hardening.retries.traffic import OUTAGES_KEY
from hardening.store import chosen_store

__all__ = ["conditions_of"]

_NOT_THERE = "404"


def conditions_of(app: Celery) -> tuple[Condition, ...]:
    """Hardening's own, and those that apps offered: one of the same name replaces ours."""
    own = (
        Condition(
            name="hardening.outage", severity=Severity.ERROR, every_seconds=10.0, look=partial(_outages, app)
        ),
        Condition(
            name="hardening.letters_on_broker",
            severity=Severity.WARNING,
            every_seconds=10.0,
            # Twice: what is parked while a store restarts is taken in soon.
            hold_looks=2,
            look=partial(_letters_on_broker, app),
        ),
    )
    return tuple({each.name: each for each in (*own, *conditions())}.values())


def _outages(app: Celery) -> Iterator[Fact]:
    entry = chosen_store(app, load_settings()[0]).read(OUTAGES_KEY)
    for dependency, document in sorted((entry.value or {}).items()):
        view = outage.view(document)
        if view.open_since is not None:
            yield Fact(
                dependency,
                f"{dependency} is down",
                f"for {text_of(max(0.0, entry.now - view.open_since))}: {view.failures} failures in a row, "
                f"of {', '.join(view.tasks)}. Its tasks wait; one at a time tries.",
            )


def _letters_on_broker(app: Celery) -> Iterator[Fact]:
    with confirming_connection(app) as connection:
        for queue, why in (
            (
                parking_queue(),
                "no store took them: see the workers' logs; manage.py dlq_ingest takes them in",
            ),
            (
                refused_queue(),
                "the store refused them: remove the cause, then manage.py dlq_ingest --refused",
            ),
        ):
            count = _length(connection, queue)
            if count:
                yield Fact(queue, f"{count} dead letter(s) wait on the broker in {queue}", why)


def _length(connection: Any, queue: str) -> int:
    # A channel for each: one that was asked for a queue which is not there is closed by RabbitMQ.
    with connection.channel() as channel:
        try:
            return int(channel.queue_declare(queue=queue, passive=True).message_count)
        except connection.channel_errors as exc:
            if str(getattr(exc, "reply_code", "")) == _NOT_THERE:
                return 0
            raise
