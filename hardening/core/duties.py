"""Periodic duties of a worker's parent process, offered by apps, run by hardening's boot step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from celery import Celery

__all__ = ["Duty", "duties", "offer_duty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """Something that every worker does now and then, in its parent process.

    `run` gets the worker's Celery app, must be short, must leave no database connection open (the
    parent forks), and may fail freely: the failure is logged and the next turn tries again.
    """

    name: str
    every_seconds: float
    run: Callable[[Celery], None]


_duties: dict[str, Duty] = {}


def offer_duty(duty: Duty) -> None:
    """Register a duty; the same name replaces the earlier one."""
    _duties[duty.name] = duty


def duties() -> tuple[Duty, ...]:
    """Every duty that an installed app offered."""
    return tuple(_duties.values())
