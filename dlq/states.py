"""The life of a dead letter: its states and the only ways from one to another. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

__all__ = ["CLOSED", "LIVE", "TRANSITIONS", "State", "may_become", "sources_of"]


class State(StrEnum):
    """Where a letter is. Stored and searched: never rename one."""

    OPEN = "open"
    REPLAYING = "replaying"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


TRANSITIONS: Mapping[State, frozenset[State]] = {
    # To REPLAYED directly only on proof: the failure of its replay arrived, so the replay was sent,
    # although its sender got an error from the broker and put the letter back.
    State.OPEN: frozenset({State.REPLAYING, State.DISCARDED, State.REPLAYED}),
    # To REPLAYING again: a claim whose holder died is taken over.
    State.REPLAYING: frozenset({State.REPLAYED, State.OPEN, State.REPLAYING}),
    State.REPLAYED: frozenset(),
    # Discarding is an archive. Restored only while no other letter of the same work is live: the database
    # sees to it (dlq_letter_live_once).
    State.DISCARDED: frozenset({State.OPEN}),
}

LIVE: tuple[State, ...] = (State.OPEN, State.REPLAYING)
"""The same failure seen again belongs to a letter in one of these. At most one of each work is."""
CLOSED: tuple[State, ...] = (State.REPLAYED, State.DISCARDED)
"""Nobody works on these; only these may be purged."""


def may_become(now: State, then: State) -> bool:
    """Whether a letter in state `now` may go to state `then`."""
    return then in TRANSITIONS[now]


def sources_of(then: State) -> tuple[State, ...]:
    """The states from which a letter may come to `then`."""
    return tuple(state for state in State if may_become(state, then))
