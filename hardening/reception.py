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

from .task import OWN_STRATEGY

__all__ = ["STEPS", "Arrival", "Step", "receive"]

logger = logging.getLogger("hardening")

STEPS: tuple[str, ...] = (
    "hardening.delayed.step",
    "hardening.twins.step",
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


class Step(Protocol):
    """One decision about messages that have arrived."""

    def concerns(self, message: Any) -> bool:
        """Whether the step wants to see a message: a look at its headers, for it is asked about each one."""
        ...

    def take(self, arrival: Arrival) -> bool:
        """Whether the message is dealt with. False: it goes on."""
        ...


def receive(task: Any, app: Any, consumer: Any, **options: Any) -> Callable[..., Any]:
    """The strategy of a hardened task: its steps, then the strategy that the task had."""
    handle = symbol_by_name(getattr(type(task), OWN_STRATEGY))(task, app, consumer, **options)
    steps = [step for step in (_prepared(name, consumer) for name in STEPS) if step is not None]

    def handler(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any, **more: Any) -> Any:
        for step in steps:
            if step.concerns(message):
                arrival = Arrival(
                    task,
                    message,
                    consumer,
                    partial(ack, logger, consumer.connection_errors),
                    lambda: handler(message, body, ack, reject, callbacks, **more),
                )
                if step.take(arrival):
                    return None
        return handle(message, body, ack, reject, callbacks, **more)

    return handler


def _prepared(name: str, consumer: Any) -> Step | None:
    """A step of this worker. One of a consumer's life: strategies are built anew with each connection."""
    prepared: dict[str, Any] = vars(consumer).setdefault("_hardening_steps", {})
    if name not in prepared:
        prepared[name] = import_module(name).prepare(consumer)
    found: Step | None = prepared[name]
    return found
