"""The terms of poison: how many deaths a work is allowed, in what time, and how long it waits between."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hardening.core.findings import Finding, Level
from hardening.policy import source_of
from hardening.retries.reading import Reader, count_of, positive_seconds_of
from hardening.retries.resolve import section_of

__all__ = ["CODE", "Poison", "poison_of", "task_terms"]

CODE = "CH023"
LARGEST_LIMIT = 50
"""The starts that a work may have: more deaths than these are not kept apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """`HARDENING["POISON"]`, read."""

    limit: float = 3
    """How many starts of one work may end with their process. math.inf: any number."""

    window: float = 72 * 3600.0
    """Deaths that are longer ago than so many seconds are forgotten."""

    base: float = 1.0
    """Seconds from the first death to the next start; doubled with each death."""

    cap: float = 60.0
    """The most seconds between two starts."""

    last_try_queue: str | None = None
    """The queue that the last try goes to: that of workers with much memory, for instance."""

    def __post_init__(self) -> None:
        """Raises ValueError for what cannot work."""
        if self.limit > LARGEST_LIMIT and not math.isinf(self.limit):
            raise ValueError(f"LIMIT is {self.limit:g}: at most {LARGEST_LIMIT}, or math.inf for none")
        if self.base > self.cap:
            raise ValueError(f"BASE is {self.base:g} s, more than CAP, which is {self.cap:g} s")
        if self.cap >= self.window:
            raise ValueError(f"CAP is {self.cap:g} s, no less than WINDOW: each death would be forgotten")


def poison_of(raw: Mapping[str, Any]) -> tuple[Poison, list[Finding]]:
    """The terms of `HARDENING["POISON"]`, and what of it cannot be used."""
    readers: dict[str, Reader] = {
        "limit": count_of,
        "window": positive_seconds_of,
        "base": positive_seconds_of,
        "cap": positive_seconds_of,
        "last_try_queue": _queue_of,
    }
    return section_of(Poison, "POISON", raw, readers, code=CODE)


def task_terms(task: Any, project: Poison) -> tuple[Poison, list[Finding]]:
    """The terms of one task: its `poison_limit` and `poison_queue` go before the project's. Never raises."""
    terms, findings = project, []
    attributes: tuple[tuple[str, str, Reader], ...] = (
        ("poison_limit", "limit", count_of),
        ("poison_queue", "last_try_queue", _queue_of),
    )
    for attribute, name, reader in attributes:
        value = getattr(task, attribute, None)
        if value is None:
            continue
        try:
            given: dict[str, Any] = {name: reader(value)}
            terms = replace(terms, **given)
        except ValueError as wrong:
            findings.append(_finding(task, attribute, wrong))
    return terms, findings


def _queue_of(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is not the name of a queue")
    return value


def _finding(task: Any, attribute: str, wrong: ValueError) -> Finding:
    return Finding(
        code=CODE,
        level=Level.ERROR,
        what=f"task {task.name} has a {attribute} that cannot be used: {wrong}",
        where=f"task {task.name}, {source_of(task)}",
        remedy="Correct the value, or remove it for the project's own.",
    )
