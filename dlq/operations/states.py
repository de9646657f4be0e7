"""The life of an operation and of each of its items. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

__all__ = [
    "ENDED",
    "ITEM_ENDS",
    "OPERATION_TRANSITIONS",
    "ItemState",
    "Kind",
    "OperationState",
    "PausedBecause",
    "operation_may_become",
    "sources_of_operation",
]


class Kind(StrEnum):
    """What an operation does to each of its letters."""

    REPLAY = "replay"
    """Send it again as the same work: same key, the next replay number."""
    COPY = "copy"
    """Send it as new work with a key of its own. The letter stays as it is."""


class OperationState(StrEnum):
    """Stored and searched: never rename one."""

    PLANNED = "planned"
    """Its letters are frozen; nothing has moved."""
    AWAITING_APPROVAL = "awaiting"
    """Somebody else must agree first."""
    RUNNING = "running"
    PAUSED = "paused"
    """By a person, or by itself: nothing more is sent until it is resumed."""
    SETTLING = "settling"
    """All that was to be sent is sent; some outcomes are not known yet."""
    CANCELLED = "cancelled"
    """What was not sent stays open. Outcomes of what was sent are followed still."""
    CLOSED = "closed"
    """Every outcome is known."""


OPERATION_TRANSITIONS: Mapping[OperationState, frozenset[OperationState]] = {
    OperationState.PLANNED: frozenset(
        {OperationState.AWAITING_APPROVAL, OperationState.RUNNING, OperationState.CANCELLED}
    ),
    OperationState.AWAITING_APPROVAL: frozenset({OperationState.RUNNING, OperationState.CANCELLED}),
    OperationState.RUNNING: frozenset(
        {OperationState.PAUSED, OperationState.SETTLING, OperationState.CANCELLED}
    ),
    OperationState.PAUSED: frozenset({OperationState.RUNNING, OperationState.CANCELLED}),
    OperationState.SETTLING: frozenset({OperationState.CLOSED}),
    OperationState.CANCELLED: frozenset({OperationState.CLOSED}),
    OperationState.CLOSED: frozenset(),
}

ENDED = frozenset({OperationState.CLOSED})


class ItemState(StrEnum):
    """Stored and searched: never rename one."""

    WAITING = "waiting"
    """Its turn has not come; the letter is as it was."""
    STAGED = "staged"
    """Its letter is claimed and its message is owed: written in one transaction."""
    SENT = "sent"
    """The broker has it; its outcome is not known: it waits or runs."""
    SUCCEEDED = "succeeded"
    CAME_BACK = "came_back"
    """It failed again: `new_letter` says as what."""
    LOST = "lost"
    """Neither success nor letter nor anything else was heard of it for DLQ["LOST_AFTER_SECONDS"]."""
    NOT_SENT = "not_sent"
    """Left alone, with its verdict: the letter is as it was, or open again."""


ITEM_ENDS = frozenset({ItemState.SUCCEEDED, ItemState.CAME_BACK, ItemState.LOST, ItemState.NOT_SENT})


class PausedBecause(StrEnum):
    """Why an operation stands still."""

    PERSON = "person"
    FAILURES = "failures"
    """More of what was sent failed again than the operation allows."""
    SAME_CAUSE = "same_cause"
    """What was sent came back with the same fingerprint."""
    BROKER = "broker"
    """The broker took nothing, again and again."""


def operation_may_become(old: OperationState, new: OperationState) -> bool:
    """Whether there is a way from one to the other."""
    return new in OPERATION_TRANSITIONS[old]


def sources_of_operation(new: OperationState) -> tuple[OperationState, ...]:
    """The states that may become `new`: the WHERE of its UPDATE."""
    return tuple(old for old, targets in OPERATION_TRANSITIONS.items() if new in targets)
