"""How far operations are, by one count over their items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import Count

from ..conf import database_alias
from ..models import Operation, OperationItem
from .states import ItemState

__all__ = ["Progress", "progress", "progress_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How many items are where. `same_cause` is a part of `came_back`; `sent` waits or runs."""

    total: int = 0
    waiting: int = 0
    staged: int = 0
    sent: int = 0
    succeeded: int = 0
    came_back: int = 0
    same_cause: int = 0
    lost: int = 0
    not_sent: int = 0
    not_sent_because: Mapping[str, int] = field(default_factory=dict)
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """Of all items, whatever became of them; "" of those that were not examined."""

    @property
    def known(self) -> int:
        """How many have ended."""
        return self.succeeded + self.came_back + self.lost + self.not_sent

    @property
    def outstanding(self) -> int:
        """How many are on their way, or run."""
        return self.staged + self.sent

    @property
    def percent(self) -> int:
        """Of all, how many have ended; 100 only when all have."""
        return 100 * self.known // self.total if self.total else 100

    def as_dict(self) -> dict[str, object]:
        """Plain form for --json."""
        return {
            "total": self.total,
            "waiting": self.waiting,
            "staged": self.staged,
            "running": self.sent,
            "succeeded": self.succeeded,
            "came_back": self.came_back,
            "same_cause": self.same_cause,
            "lost": self.lost,
            "not_sent": self.not_sent,
            "not_sent_because": dict(self.not_sent_because),
            "percent": self.percent,
        }


def progress(operation: Operation) -> Progress:
    """Of one operation."""
    return progress_of([operation.pk]).get(operation.pk, Progress())


def progress_of(operation_ids: Iterable[UUID]) -> dict[UUID, Progress]:
    """Of several, in one query; those without items are missing."""
    rows = (
        OperationItem.objects.using(database_alias())
        .filter(operation_id__in=list(operation_ids))
        .order_by()
        .values_list("operation_id", "state", "verdict", "same_cause")
        .annotate(number=Count("*"))
    )
    found: dict[UUID, dict[str, int]] = {}
    because: dict[UUID, dict[str, int]] = {}
    verdicts: dict[UUID, Counter[str]] = {}
    for operation_id, state, verdict, same_cause, number in rows:
        numbers = found.setdefault(operation_id, dict.fromkeys((*ItemState, "same_cause"), 0))
        numbers[state] += number
        verdicts.setdefault(operation_id, Counter())[verdict] += number
        if state == ItemState.CAME_BACK and same_cause:
            numbers["same_cause"] += number
        if state == ItemState.NOT_SENT:
            why = because.setdefault(operation_id, {})
            why[verdict] = why.get(verdict, 0) + number
    return {
        pk: Progress(
            total=sum(numbers[state] for state in ItemState),
            not_sent_because=because.get(pk, {}),
            verdicts=verdicts[pk],
            **numbers,
        )
        for pk, numbers in found.items()
    }
