"""What an operation would do to a set of letters, for its confirm page. Reads only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Min
from django.utils.functional import Promise

from dlq.models import DeadLetter, DeadLetterQuerySet

__all__ = ["Split", "Summary", "summarise"]

_MOST_GROUPS = 20
_SAMPLE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    task_name: str
    queue: str
    letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`skipped` holds state and count of the letters that are in the wrong state."""

    fitting: int
    skipped: tuple[tuple[str | Promise, int], ...]
    split: tuple[Split, ...]
    more_groups: bool
    oldest: datetime | None
    newest: datetime | None
    sample: tuple[DeadLetter, ...]

    @property
    def skipped_total(self) -> int:
        return sum(count for _state, count in self.skipped)


def summarise(
    letters: DeadLetterQuerySet, *, fits: Callable[[DeadLetterQuerySet], DeadLetterQuerySet]
) -> Summary:
    """Counts by task and queue of the letters that fit, counts by state of those that do not."""
    unordered = letters.order_by()
    fitting = fits(unordered)
    span = fitting.aggregate(count=Count("pk"), oldest=Min("failed_at"), newest=Max("failed_at"))
    groups = list(
        fitting.values_list("task_name", "queue")
        .annotate(letters=Count("pk"))
        .order_by("-letters")[: _MOST_GROUPS + 1]
    )
    labels = dict(DeadLetter._meta.get_field("state").flatchoices)
    by_state = dict(unordered.values_list("state").annotate(letters=Count("pk")))
    fitting_by_state = dict(fitting.values_list("state").annotate(letters=Count("pk")))
    skipped = {state: count - fitting_by_state.get(state, 0) for state, count in by_state.items()}
    return Summary(
        fitting=span["count"],
        skipped=tuple((labels[state], count) for state, count in sorted(skipped.items()) if count > 0),
        split=tuple(
            Split(task_name=task, queue=queue, letters=n) for task, queue, n in groups[:_MOST_GROUPS]
        ),
        more_groups=len(groups) > _MOST_GROUPS,
        oldest=span["oldest"],
        newest=span["newest"],
        sample=tuple(fitting.order_by("failed_at")[:_SAMPLE]),
    )
