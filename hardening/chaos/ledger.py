"""The ledger: what became of every task that was published, and why some ran twice. Pure: it counts.

    published = succeeded + dead + cancelled + pending, by delivery key; what is in none of them is lost.

An open letter goes before a success: the work was done, and something behind it is open. A success is a body
that the witness saw at its end. Of a chain or chord the later tasks count once all before them succeeded:
from then on somebody owes their publish, whoever has to make it. A publish that no broker confirmed and of
which nothing was ever seen is counted as not accepted, and not as published. Cancelled is what is recorded as
REVOKED, or what somebody closed as a letter: that a revoke was sent is no proof.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from .causes import Causes
from .facts import Hit, Letter, Mark, Published

__all__ = ["Duplicate", "Fate", "Ledger", "Row", "draw_up"]

SUCCESS, FAILURE, REVOKED = "SUCCESS", "FAILURE", "REVOKED"


class Fate(StrEnum):
    """What became of a task. Each has exactly one."""

    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"
    PENDING = "pending"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """One completed run beyond the first."""

    key: str
    kind: str
    cause: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The tasks of one kind."""

    kind: str
    fates: Mapping[Fate, int]
    duplicates: int = 0

    @property
    def published(self) -> int:
        return sum(self.fates.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The result of a run. `left` are messages of tasks whose fate is known: they may yet run again."""

    rows: tuple[Row, ...]
    fates: Mapping[str, Fate]
    duplicates: tuple[Duplicate, ...] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)
    not_accepted: tuple[str, ...] = ()
    left: int = 0
    strangers: tuple[str, ...] = ()
    """Keys that were seen at work or in the letters, and that nobody published."""

    unanswered: tuple[str, ...] = ()
    """Tasks with a fate whose result says something else, or nothing: whoever waits for them waits on."""

    both: tuple[str, ...] = ()
    """Tasks that succeeded and have an open letter as well."""

    def of(self, fate: Fate) -> int:
        """How many met this fate."""
        return sum(row.fates.get(fate, 0) for row in self.rows)

    @property
    def published(self) -> int:
        return sum(row.published for row in self.rows)

    @property
    def balances(self) -> bool:
        """Whether each task is accounted for, and nothing is left to come."""
        return not (self.of(Fate.LOST) or self.of(Fate.PENDING) or self.left or self.strangers)

    def line(self, seed: int) -> str:
        """The ledger in one line, for scripts."""
        counts = " ".join(f"{fate}={self.of(fate)}" for fate in Fate)
        return f"ledger: published={self.published} {counts} duplicates={len(self.duplicates)} seed={seed}"


def draw_up(
    published: Sequence[Published],
    *,
    marks: Iterable[Mark],
    letters: Iterable[Letter] = (),
    states: Mapping[str, str] | None = None,
    held: Collection[str] = (),
    hits: Sequence[Hit] = (),
    failures_are_dead: bool = False,
    check_results: bool = True,
) -> Ledger:
    """Draw up the ledger.

    `states` are results by task id; `held` are the keys, with repetition, of the messages that the broker
    and its stores still have ("" for a message that names none). With `failures_are_dead` a recorded FAILURE
    counts as a dead letter: all that plain Celery keeps.
    """
    evidence = _Evidence(marks, letters, states or {}, held, hits, failures_are_dead=failures_are_dead)
    known = {each.key: each for each in published}
    fates: dict[str, Fate] = {}
    not_accepted = []
    for each in published:  # What leads to others stands before them.
        seen = evidence.seen(each.key)
        owed = bool(each.after) and all(fates.get(key) is Fate.SUCCEEDED for key in each.after)
        if seen or owed or (each.confirmed and not each.after):
            fates[each.key] = evidence.fate(each)
        elif not each.after:
            not_accepted.append(each.key)
    duplicates = tuple(_duplicates(known, evidence))
    return Ledger(
        rows=tuple(_rows(published, fates, duplicates)),
        fates=fates,
        duplicates=duplicates,
        reasons=Counter(
            evidence.open_letters[key][-1].reason if key in evidence.open_letters else "FAILURE recorded"
            for key, fate in fates.items()
            if fate is Fate.DEAD
        ),
        not_accepted=tuple(not_accepted),
        left=sum(n for key, n in evidence.held.items() if fates.get(key) is not Fate.PENDING),
        strangers=tuple(
            sorted({key for key in (*evidence.ends, *evidence.starts, *evidence.letters) if key not in known})
        ),
        unanswered=tuple(
            key for key in _unanswered(fates, evidence.states) if check_results and known[key].answers
        ),
        both=tuple(key for key in evidence.open_letters if key in evidence.ends),
    )


class _Evidence:
    """All that is known, by key."""

    def __init__(
        self,
        marks: Iterable[Mark],
        letters: Iterable[Letter],
        states: Mapping[str, str],
        held: Collection[str],
        hits: Sequence[Hit],
        *,
        failures_are_dead: bool,
    ) -> None:
        self.starts: defaultdict[str, list[Mark]] = defaultdict(list)
        self.ends: defaultdict[str, list[Mark]] = defaultdict(list)
        for mark in marks:
            (self.ends if mark.what == "end" else self.starts)[mark.key].append(mark)
        self.letters: defaultdict[str, list[Letter]] = defaultdict(list)
        for letter in letters:
            self.letters[letter.key].append(letter)
        self.open_letters = {
            key: found for key, of in self.letters.items() if (found := [each for each in of if each.open])
        }
        self.states = states
        self.held = Counter(held)
        self.hits = hits
        self._failures_are_dead = failures_are_dead

    def seen(self, key: str) -> bool:
        """Whether a message of it was ever seen anywhere."""
        return (
            key in self.starts
            or key in self.ends
            or key in self.letters
            or key in self.held
            or self.states.get(key) in (SUCCESS, REVOKED)
            # A chain's later tasks are marked failed with the one that failed, and were never sent.
        )

    def fate(self, each: Published) -> Fate:
        """The fate of one that was accepted."""
        key, state = each.key, self.states.get(each.key)
        if key in self.open_letters:
            return Fate.DEAD
        if key in self.ends:
            return Fate.SUCCEEDED
        if key in self.held:
            return Fate.PENDING
        if state == REVOKED or key in self.letters:
            return Fate.CANCELLED
        if self._failures_are_dead and state == FAILURE:
            return Fate.DEAD
        return Fate.LOST


def _rows(
    published: Sequence[Published], fates: Mapping[str, Fate], duplicates: Sequence[Duplicate]
) -> list[Row]:
    by_kind: dict[str, Counter[Fate]] = {}
    for each in published:
        counter = by_kind.setdefault(each.kind, Counter())
        if each.key in fates:
            counter[fates[each.key]] += 1
    twice = Counter(each.kind for each in duplicates)
    return [Row(kind=kind, fates=counter, duplicates=twice[kind]) for kind, counter in by_kind.items()]


def _unanswered(fates: Mapping[str, Fate], states: Mapping[str, str]) -> list[str]:
    wanted = {Fate.SUCCEEDED: (SUCCESS,), Fate.DEAD: (FAILURE, REVOKED), Fate.CANCELLED: (REVOKED,)}
    return [
        key
        for key, fate in fates.items()
        if fate in wanted and states.get(key, "PENDING") not in wanted[fate]
    ]


def _duplicates(known: Mapping[str, Published], evidence: _Evidence) -> Iterable[Duplicate]:
    causes = Causes(evidence.starts, evidence.ends, evidence.hits)
    for key, ends in evidence.ends.items():
        ordered = sorted(ends, key=lambda mark: mark.at)
        for before, again in pairwise(ordered):
            cause, why = causes.of(known.get(key), before, again)
            kind = known[key].kind if key in known else "?"
            yield Duplicate(key=key, kind=kind, cause=cause, evidence=why)
