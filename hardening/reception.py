"""Reception: what is decided about a message of a known task before Celery makes a request of it.

Celery calls a task's strategy for every message of it, whoever sent it. This one asks its steps, in
order, whether the message is theirs, and leaves the rest to the strategy that the task had before. A step
that takes a message answers for it: it acknowledges it when what it did is durable, or keeps it and sends
it on later with `Arrival.proceed`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Protocol

from celery.utils.imports import symbol_by_name
from celery.worker import strategy

from .task import OWN_STRATEGY

__all__ = ["STEPS", "Arrival", "Step", "receive"]

logger = logging.getLogger("hardening")

STEPS: tuple[str, ...] = (
    "hardening.delayed.step",
    "hardening.twins.step",
    "hardening.poison.step",
)
"""Modules with a `prepare(consumer)`, in the order in which their steps are asked."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that has come to a worker, in its main loop."""

    task: Any
    message: Any
    consumer: Any
    acknowledge: Callable[[], None]
    """Take the message off the broker, as soon as the loop is free."""

    proceed: Callable[[], None]
    """Let the message through reception again; to be called from the main loop or its timer."""

    request: Callable[[], Any] = lambda: None
    """Make the request of it that Celery would make, to end it and not to start it."""


class Step(Protocol):
    """One decision about messages that have arrived."""

    def concerns(self, message: Any) -> bool:
        """Whether the step wants to see a message: a look at its headers, for it is asked about each one."""
        ...

    def take(self, arrival: Arrival) -> bool:
        """Whether the message is dealt with. False: it goes on."""
        ...

    # A step may have a `for_task(task)`: the step of the messages of one task, or None.


def receive(task: Any, app: Any, consumer: Any, **options: Any) -> Callable[..., Any]:
    """The strategy of a hardened task: its steps, then the strategy that the task had."""
    handle = symbol_by_name(getattr(type(task), OWN_STRATEGY))(task, app, consumer, **options)
    steps = [step for name in STEPS if (step := _for_task(task, _prepared(name, consumer))) is not None]

    def handler(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any, **more: Any) -> Any:
        for step in steps:
            if step.concerns(message):
                arrival = Arrival(
                    task,
                    message,
                    consumer,
                    partial(ack, logger, consumer.connection_errors),
                    lambda: handler(message, body, ack, reject, callbacks, **more),
                    lambda: _request(task, app, consumer, message, body, ack, reject),
                )
                if step.take(arrival):
                    return None
        return handle(message, body, ack, reject, callbacks, **more)

    return handler


def _for_task(task: Any, step: Step | None) -> Step | None:
    narrow: Callable[[Any], Step | None] | None = getattr(step, "for_task", None)
    return step if narrow is None else narrow(task)


def _request(task: Any, app: Any, consumer: Any, message: Any, body: Any, ack: Any, reject: Any) -> Any:
    """As Celery's own strategy does."""
    celerys: Any = strategy
    if body is None and "args" not in message.payload:
        found = message.body, message.headers, False, app.uses_utc_timezone()
    elif "args" in message.payload:
        found = celerys.hybrid_to_proto2(message, message.payload)
    else:
        found = celerys.proto1_to_proto2(message, body)
    body, headers, decoded, utc = found
    return symbol_by_name(task.Request)(
        message,
        on_ack=ack,
        on_reject=reject,
        app=app,
        hostname=consumer.hostname,
        eventer=consumer.event_dispatcher,
        task=task,
        connection_errors=consumer.connection_errors,
        body=body,
        headers=headers,
        decoded=decoded,
        utc=utc,
    )


def _prepared(name: str, consumer: Any) -> Step | None:
    """A step of this worker. One of a consumer's life: strategies are built anew with each connection."""
    prepared: dict[str, Any] = vars(consumer).setdefault("_hardening_steps", {})
    if name not in prepared:
        prepared[name] = import_module(name).prepare(consumer)
    found: Step | None = prepared[name]
    return found
