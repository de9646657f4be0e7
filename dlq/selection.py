"""Which letters a command means: by ids, or by filters, never all of them by accident."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from .conf import database_alias
from .models import DeadLetter, DeadLetterQuerySet

__all__ = ["Selection", "parse_ids"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Filters of a command; None: not given."""

    state: str | None = None
    task: str | None = None
    queue: str | None = None
    reason: str | None = None
    error_class: str | None = None
    verdict: str | None = None
    group: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it means every letter."""
        return not self.filters()

    def letters(self) -> DeadLetterQuerySet:
        """The letters that all given filters allow."""
        letters: DeadLetterQuerySet = DeadLetter.objects.using(database_alias()).filter(**self.filters())
        return letters

    def filters(self) -> dict[str, Any]:
        """What was given, as lookups."""
        given = {
            "state": self.state,
            "task_name": self.task,
            "queue": self.queue,
            "reason": self.reason,
            "error_class": self.error_class,
            "verdict": self.verdict,
            "fingerprint": self.group,
        }
        return {name: value for name, value in given.items() if value is not None}


def parse_ids(texts: Sequence[str]) -> list[UUID]:
    """Letter ids. Raises ValueError that names what is none."""
    ids = []
    for text in texts:
        try:
            ids.append(UUID(text))
        except ValueError:
            raise ValueError(f"{text!r} is not the id of a dead letter; dlq_list shows them") from None
    return ids
