"""An explicit-state model checker: every state that a model can reach, breadth first.

A model is a start state and a function from a state to its moves. States are values that can be hashed.
Breadth first, so that a counterexample is as short as one can be.

Two kinds of claims. An invariant holds in each state. A goal is reached from each state by moves that are
no failures, whatever has failed before. Where a state of the goal stays in it, this is the same as: once
nothing more fails, every run ends in the goal, provided that it does not for ever pass by one of the moves
that are open to it again and again. (Such a run ends in a set of states that it cannot leave; if the goal
can be reached from there, it is in there.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Counterexample", "Move", "Report", "TooManyStates", "explore"]

S = TypeVar("S", bound=Hashable)


class Move(NamedTuple, Generic[S]):
    """One atomic step: what it is called, where it leads, and whether it is a failure."""

    label: str
    state: S
    failure: bool = False


class TooManyStates(Exception):
    """The model is larger than the caller wants to wait for. Nothing is known of the rest."""


@dataclass(frozen=True, slots=True)
class Counterexample(Generic[S]):
    """A claim that does not hold, and the shortest way to a state that shows it."""

    claim: str
    start: S
    moves: tuple[tuple[str, S], ...]
    show: Callable[[S], str] = repr

    @property
    def labels(self) -> list[str]:
        return [label for label, _ in self.moves]

    def __str__(self) -> str:
        lines = [f"{self.claim} does not hold:", f"      {self.show(self.start)}"]
        for number, (label, state) in enumerate(self.moves, 1):
            lines += [f"{number:>4}. {label}", f"      {self.show(state)}"]
        return "\n".join(lines)


@dataclass(slots=True)
class Report(Generic[S]):
    """What was looked at, and the first claim that does not hold, if there is one."""

    states: int = 0
    moves: int = 0
    labels: set[str] = field(default_factory=set)
    """The first words of all moves: a move that never happens proves nothing."""

    counterexample: Counterexample[S] | None = None


def explore(
    start: S,
    moves: Callable[[S], Iterable[Move[S]]],
    *,
    invariants: Mapping[str, Callable[[S], bool]],
    goal: tuple[str, Callable[[S], bool]] | None = None,
    alike: Callable[[S], S] = lambda state: state,
    show: Callable[[S], str] = repr,
    most_states: int = 1_000_000,
) -> Report[S]:
    """Look at every state; stop at the first that breaks an invariant. The goal is judged at the end.

    `alike` names the one of several states that stands for all of them: what is true of it is true of
    each, and their moves lead to states that are alike again.
    """
    report: Report[S] = Report()
    start = alike(start)
    came: dict[S, S | None] = {start: None}
    sources: dict[S, list[S]] = {}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        broken = next((name for name, holds in invariants.items() if not holds(state)), None)
        if broken is not None:
            report.states = len(came)
            report.counterexample = _trace(broken, state, came, moves, alike, show)
            return report
        for label, after, failure in moves(state):
            reached = alike(after)
            report.moves += 1
            report.labels.add(label)
            if reached not in came:
                came[reached] = state
                waiting.append(reached)
                if len(came) > most_states:
                    raise TooManyStates(f"more than {most_states} states")
            if goal is not None and not failure:
                sources.setdefault(reached, []).append(state)
    report.states = len(came)
    if goal is not None:
        name, reached_goal = goal
        stuck = _cannot_reach(reached_goal, came, sources)
        if stuck is not None:
            report.counterexample = _trace(name, stuck, came, moves, alike, show)
    return report


def _cannot_reach(
    goal: Callable[[S], bool], came: Mapping[S, object], sources: Mapping[S, list[S]]
) -> S | None:
    """The first state, in the order of the search, from which no state of the goal can be reached."""
    can = {state for state in came if goal(state)}
    waiting = list(can)
    while waiting:
        for source in sources.get(waiting.pop(), ()):
            if source not in can:
                can.add(source)
                waiting.append(source)
    return next((state for state in came if state not in can), None)


def _trace(
    claim: str,
    end: S,
    came: Mapping[S, S | None],
    moves: Callable[[S], Iterable[Move[S]]],
    alike: Callable[[S], S],
    show: Callable[[S], str],
) -> Counterexample[S]:
    """The way there, gone once more: the search knows it only up to what is alike."""
    path = [end]
    while (before := came[path[-1]]) is not None:
        path.append(before)
    start = state = path.pop()
    steps: list[tuple[str, S]] = []
    while path:
        target = path.pop()
        label, state = next((move.label, move.state) for move in moves(state) if alike(move.state) == target)
        steps.append((label, state))
    return Counterexample(claim, start, tuple(steps), show)
