"""What an action would do to a set of letters, for its confirm page. Reads only, and never counts all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.utils.functional import Promise

from dlq.models import DeadLetter, DeadLetterQuerySet

__all__ = ["MOST_COUNTED", "Split", "Summary", "summarise"]

MOST_COUNTED = 10_000
_MOST_SPLIT = 20
_SAMPLE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    task_name: str
    queue: str
    letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`skipped` holds state and count of the letters that are in the wrong state.

    `is_bounded`: there are more that fit than were counted; `split` is of those counted then, and how many
    are skipped is not known.
    """

    fitting: int
    is_bounded: bool
    skipped: tuple[tuple[str | Promise, int], ...]
    split: tuple[Split, ...]
    more_split: bool
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
    rows = list(fitting.values_list("task_name", "queue", "state")[: MOST_COUNTED + 1])
    is_bounded = len(rows) > MOST_COUNTED
    del rows[MOST_COUNTED:]
    split = Counter((task, queue) for task, queue, _state in rows).most_common()
    skipped: Counter[str] = Counter()
    if not is_bounded:
        skipped.update(unordered.values_list("state", flat=True)[: 2 * MOST_COUNTED])
        skipped.subtract(state for _task, _queue, state in rows)
    labels = dict(DeadLetter._meta.get_field("state").flatchoices)
    sample = tuple(fitting.order_by("failed_at", "pk")[:_SAMPLE]) if rows else ()
    newest = fitting.order_by("-failed_at", "-pk").values_list("failed_at", flat=True)[:1] if rows else ()
    return Summary(
        fitting=len(rows),
        is_bounded=is_bounded,
        skipped=tuple((labels[state], count) for state, count in sorted(skipped.items()) if count > 0),
        split=tuple(
            Split(task_name=task, queue=queue, letters=n) for (task, queue), n in split[:_MOST_SPLIT]
        ),
        more_split=len(split) > _MOST_SPLIT,
        oldest=sample[0].failed_at if sample else None,
        newest=next(iter(newest), None),
        sample=sample,
    )
