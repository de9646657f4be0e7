"""The ledger: what became of every job that was published. Pure: it counts what it is given.

published = succeeded + dead + cancelled + pending, counted by delivery key. What is in none of these is lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sample_project.demo.table import laid_out
from sample_project.effects import STARTED, SUCCEEDED, Effect


class Fate(StrEnum):
    """What became of a job. Each has exactly one."""

    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"
    PENDING = "pending"
    LOST = "lost"


class LetterState(StrEnum):
    """As much of a dead letter's state as the ledger asks for."""

    OPEN = "open"
    REPLAYING = "replaying"
    REPLAYED = "replayed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One failed attempt, as a letter tells of it."""

    verdict: str = ""
    rule: str = ""
    began: datetime | None = None
    failed: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One dead letter of the store; `attempts` in their order."""

    id: str
    key: str
    reason: str
    state: LetterState
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The jobs of one kind. `published` is the sum of the fates."""

    kind: str
    fates: Mapping[Fate, int]
    dead_by_reason: Mapping[str, int] = field(default_factory=dict)
    retried: int = 0
    recovered: int = 0
    repeated: int = 0

    @property
    def published(self) -> int:
        return sum(self.fates.values())

    def of(self, fate: Fate) -> int:
        """How many met this fate."""
        return self.fates.get(fate, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """One row for each kind, in the order of publication.

    `strangers` are delivery keys that were seen at work or in the store and never published.
    """

    rows: tuple[Row, ...]
    strangers: tuple[str, ...] = ()

    @property
    def total(self) -> Row:
        """All the rows in one."""
        fates: Counter[Fate] = Counter()
        reasons: Counter[str] = Counter()
        for row in self.rows:
            fates.update(row.fates)
            reasons.update(row.dead_by_reason)
        return Row(
            kind="all",
            fates=fates,
            dead_by_reason=reasons,
            retried=sum(row.retried for row in self.rows),
            recovered=sum(row.recovered for row in self.rows),
            repeated=sum(row.repeated for row in self.rows),
        )

    @property
    def balances(self) -> bool:
        """Whether every job is accounted for and settled, and nothing else was at work."""
        total = self.total
        return total.of(Fate.LOST) == 0 and total.of(Fate.PENDING) == 0 and not self.strangers

    @property
    def line(self) -> str:
        """The ledger in one line, for scripts."""
        total = self.total
        return f"ledger: published={total.published} " + " ".join(f"{fate}={total.of(fate)}" for fate in Fate)


def fate_of(*, letters: Collection[Letter], effects: Collection[Effect], on_broker: bool) -> Fate:
    """The fate of one job, from all that is known under its delivery key.

    An open letter outweighs a success: the work was done, and something after it failed.
    """
    states = {letter.state for letter in letters}
    if LetterState.OPEN in states:
        return Fate.DEAD
    if any(effect.outcome == SUCCEEDED for effect in effects):
        return Fate.SUCCEEDED
    if LetterState.CANCELLED in states:
        return Fate.CANCELLED
    # While a replay is under way the store still holds the job.
    return Fate.PENDING if on_broker or LetterState.REPLAYING in states else Fate.LOST


def count(
    published: Mapping[str, str],
    effects: Iterable[Effect],
    letters: Iterable[Letter],
    on_broker: Collection[str],
    *,
    kinds: Collection[str] = (),
) -> Ledger:
    """Draw up the ledger.

    `published` maps delivery key to kind; `on_broker` are the keys that the broker still holds. Rows come in
    the order of `kinds`, then of publication.
    """
    effects_of: defaultdict[str, list[Effect]] = defaultdict(list)
    for effect in effects:
        effects_of[effect.key].append(effect)
    letters_of: defaultdict[str, list[Letter]] = defaultdict(list)
    for letter in letters:
        letters_of[letter.key].append(letter)

    keys_of: dict[str, list[str]] = {kind: [] for kind in kinds}
    for key, kind in published.items():
        keys_of.setdefault(kind, []).append(key)
    rows = [
        _row(kind, keys, effects_of=effects_of, letters_of=letters_of, on_broker=on_broker)
        for kind, keys in keys_of.items()
        if keys
    ]
    strangers = sorted((effects_of.keys() | letters_of.keys()) - published.keys())
    return Ledger(rows=tuple(rows), strangers=tuple(strangers))


def _row(
    kind: str,
    keys: Collection[str],
    *,
    effects_of: Mapping[str, Collection[Effect]],
    letters_of: Mapping[str, Collection[Letter]],
    on_broker: Collection[str],
) -> Row:
    fates: Counter[Fate] = Counter()
    reasons: Counter[str] = Counter()
    for key in keys:
        letters = letters_of.get(key, ())
        fate = fate_of(letters=letters, effects=effects_of.get(key, ()), on_broker=key in on_broker)
        fates[fate] += 1
        if fate is Fate.DEAD:
            # One job, one reason: the newest open letter comes last.
            reasons[[letter.reason for letter in letters if letter.state is LetterState.OPEN][-1]] += 1
    runs = [effects_of.get(key, ()) for key in keys]
    return Row(
        kind=kind,
        fates=fates,
        dead_by_reason=reasons,
        retried=sum(map(was_retried, runs)),
        recovered=sum(map(was_recovered, runs)),
        repeated=sum(map(was_repeated, runs)),
    )


def was_retried(effects: Iterable[Effect]) -> bool:
    """Whether the job started again because its task asked for it."""
    return any(effect.outcome == STARTED and effect.attempt > 0 for effect in effects)


def was_recovered(effects: Collection[Effect]) -> bool:
    """Whether a run was cut off without a word, and the same attempt was started again."""
    starts = Counter((e.replay, e.attempt) for e in effects if e.outcome == STARTED)
    ends = Counter((e.replay, e.attempt) for e in effects if e.outcome != STARTED)
    return any(started > 1 and ends[run] < started for run, started in starts.items())


def was_repeated(effects: Iterable[Effect]) -> bool:
    """Whether the body ran to its end more than once: the price of at-least-once."""
    return sum(effect.outcome == SUCCEEDED for effect in effects) > 1


def render(ledger: Ledger) -> str:
    """The ledger as a table, with its total as the last row."""
    head = ("job", "published", *(str(fate) for fate in Fate), "retried", "recovered", "repeated")
    table = [head, *(_cells(row) for row in ledger.rows), _cells(ledger.total)]
    lines = laid_out(table, words=(0,), total=True)
    reasons = ledger.total.dead_by_reason
    if reasons:
        lines += ["", f"dead by reason: {_reasons(reasons)}"]
    if ledger.strangers:
        lines.append(f"seen at work, but never published: {', '.join(ledger.strangers)}")
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    numbers = (row.published, *(row.of(fate) for fate in Fate), row.retried, row.recovered, row.repeated)
    return (row.kind, *(str(number) if number else "." for number in numbers))


def _reasons(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {number}" for reason, number in sorted(reasons.items()))
