"""What the ledger tells beside the jobs: groups of letters, and the outcomes of a replay. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sample_project.demo.table import laid_out

_GROUP_HEAD = ("group of letters", "task", "reason", "letters", "open", "state")
_LONGEST_TITLE = 44


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Letters of one cause: `letters` in all, of which `open` are open."""

    fingerprint: str
    title: str
    task: str
    reason: str
    letters: int
    open: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """An operation: what its dry run said of its letters, and how many met which end."""

    name: str
    state: str
    pace: str
    total: int
    verdicts: Mapping[str, int] = field(default_factory=dict)
    succeeded: int = 0
    came_back: int = 0
    same_cause: int = 0
    lost: int = 0
    running: int = 0
    not_sent: int = 0
    paused: str = ""

    @property
    def sent(self) -> int:
        """How many the broker took; of `running` ones the outcome is not known."""
        return self.succeeded + self.came_back + self.lost + self.running

    @property
    def known(self) -> int:
        """How many have ended, those that were left alone too."""
        return self.succeeded + self.came_back + self.lost + self.not_sent

    @property
    def all_succeeded(self) -> bool:
        """Whether each letter of it was sent and succeeded, and the operation knows."""
        return self.state == "closed" and self.succeeded == self.total


def groups_table(groups: Sequence[Group]) -> str:
    """One line for each group."""
    lines = [
        (
            _short(group.title),
            group.task,
            group.reason,
            str(group.letters),
            str(group.open or "."),
            group.state,
        )
        for group in groups
    ]
    return "\n".join(laid_out([_GROUP_HEAD, *lines], words=(0, 1, 2, 5)))


def outcomes_lines(outcomes: Outcomes) -> str:
    """An operation in a few lines."""
    verdicts = ", ".join(f"{verdict} {number}" for verdict, number in sorted(outcomes.verdicts.items()))
    counts = {
        "sent": outcomes.sent,
        "succeeded": outcomes.succeeded,
        "came back": outcomes.came_back,
        "of these with the same cause": outcomes.same_cause,
        "running": outcomes.running,
        "lost": outcomes.lost,
        "not sent": outcomes.not_sent,
    }
    lines = [
        f"operation {outcomes.name}: {outcomes.state}, {outcomes.pace}",
        f"  dry run   {verdicts or 'nothing to be sent'}",
        f"  outcomes  {', '.join(f'{name} {number}' for name, number in counts.items())}",
    ]
    if outcomes.paused:
        lines.append(f"  paused    {outcomes.paused}")
    return "\n".join(lines)


def _short(title: str) -> str:
    text = " ".join(title.split())
    return text if len(text) <= _LONGEST_TITLE else f"{text[: _LONGEST_TITLE - 3]}..."
