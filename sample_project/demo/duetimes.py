"""Counts what Beat sent: each due time once, whichever Beat led. Pure.

The due times that there must be are reckoned from the schedules alone, between the first and the last that
was seen; what ran is known from the tasks' own files. Neither asks the Beats.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sample_project.effects import SUCCEEDED, Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """The Beat that led in epoch `killed` was killed, and the first message of `after` came so much later."""

    killed: int
    after: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTimes:
    """`due` are all that there must be, `sent` those of which Beat says that the broker has the message.
    `doubled` are runs to the end beyond the first, `missed` are those without such a run."""

    due: int
    sent: int
    doubled: int
    missed: int

    @property
    def balances(self) -> bool:
        """Whether each due time was sent, and ran once."""
        return self.due == self.sent > 0 == self.doubled == self.missed

    def line(self, takeover: Takeover) -> str:
        """All of it in one line, for scripts."""
        return (
            f"beat: due={self.due} sent={self.sent} doubled={self.doubled} missed={self.missed} "
            f"takeover={takeover.seconds:.1f} s (killed leader epoch {takeover.killed}, "
            f"epoch {takeover.after} took over)"
        )


def count_due_times(
    every_ms: Mapping[str, int], sent: Collection[tuple[str, int]], effects: Iterable[Effect]
) -> DueTimes:
    """`every_ms`: of each schedule, by name. `sent`: (schedule, due time) that Beat calls sent."""
    runs = Counter(_of(effect) for effect in effects if effect.outcome == SUCCEEDED)
    seen: defaultdict[str, list[int]] = defaultdict(list)
    for name, due_ms in {*sent, *runs}:
        seen[name].append(due_ms)
    due = {
        (name, due_ms)
        for name, every in every_ms.items()
        if seen[name]
        for due_ms in range(min(seen[name]), max(seen[name]) + 1, every)
    }
    ran = due & runs.keys()
    return DueTimes(
        due=len(due),
        sent=len(due & {*sent}),
        # One that is on no schedule is one too many as well.
        doubled=runs.total() - len(ran),
        missed=len(due) - len(ran),
    )


def _of(effect: Effect) -> tuple[str, int]:
    due_ms, _, name = effect.scheduled.partition(" ")
    return name, int(due_ms)
