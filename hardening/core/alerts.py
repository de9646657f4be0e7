"""Conditions that people want to be told of: apps offer them, hardening looks and tells each incident."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["Condition", "Fact", "Severity", "conditions", "offer_condition"]


class Severity(IntEnum):
    """How much it matters; a channel may ask for a least one."""

    INFO = 10
    WARNING = 20
    ERROR = 30
    CRITICAL = 40


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that holds now.

    `subject` names the incident and stays the same as long as it lasts: the group, the queue. `link` is a
    URL, or a path of the site. Secrets are taken out of all of them, and long texts are cut.
    """

    subject: str
    summary: str
    detail: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A question that is asked again and again, by one process of the fleet at a time.

    `look` answers with every fact that holds now, none if all is well. It is asked in the main loop of
    a worker, so it must be short, and wait for nothing without a bound (see
    `hardening.core.connection.bounded_connection`); its database connections are closed behind it. Where
    it cannot know it raises: that is logged, opens nothing and resolves nothing.
    """

    name: str
    severity: Severity
    every_seconds: float
    """What is to be raised within 30 s is asked every 10 s or so."""

    look: Callable[[], Iterable[Fact]]
    hold_looks: int = 1
    """A fact opens an incident when so many looks in a row have found it,"""

    hold_seconds: float = 0.0
    """and when it has held for so long."""

    gone_seconds: float = 60.0
    """An incident is resolved when every look has missed its fact for so long."""

    def __post_init__(self) -> None:
        if not self.every_seconds > 0:
            raise ValueError(f"the condition {self.name!r} is asked every {self.every_seconds!r} s")


_conditions: dict[str, Condition] = {}


def offer_condition(condition: Condition) -> None:
    """Register a condition; the same name replaces the earlier one."""
    _conditions[condition.name] = condition


def conditions() -> tuple[Condition, ...]:
    """Every condition that an installed app offered."""
    return tuple(_conditions.values())
