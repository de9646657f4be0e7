"""What is said of a group, and what a new letter makes of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

__all__ = [
    "GROUP_TRANSITIONS",
    "QUIET",
    "GroupState",
    "after_new_letter",
    "group_may_become",
    "sources_of_group",
]


class GroupState(StrEnum):
    """Stored and searched: never rename one."""

    OPEN = "open"
    """Nobody looked at it yet."""
    ACKNOWLEDGED = "acknowledged"
    """Somebody is at it."""
    SNOOZED = "snoozed"
    """To be left alone until a time or a release."""
    RESOLVED = "resolved"
    """Its cause is gone. A new letter says that it is not."""
    REGRESSED = "regressed"
    """It was resolved, and a new letter came."""


_BY_PEOPLE = frozenset({GroupState.OPEN, GroupState.ACKNOWLEDGED, GroupState.SNOOZED, GroupState.RESOLVED})

GROUP_TRANSITIONS: Mapping[GroupState, frozenset[GroupState]] = {
    state: _BY_PEOPLE - {state} for state in GroupState
}
"""What people may make of each. REGRESSED only a letter can say."""

QUIET = frozenset({GroupState.ACKNOWLEDGED, GroupState.SNOOZED, GroupState.RESOLVED})
"""Those that raise no alarm of their own."""


def group_may_become(old: GroupState, new: GroupState) -> bool:
    """Whether a person may say so."""
    return new in GROUP_TRANSITIONS[old]


def sources_of_group(new: GroupState) -> tuple[GroupState, ...]:
    """The states of which a person may make this one: the WHERE of its UPDATE."""
    return tuple(old for old, targets in GROUP_TRANSITIONS.items() if new in targets)


def after_new_letter(state: GroupState, *, counts: bool) -> GroupState:
    """The state after a new letter.

    `counts`: it failed after the group was resolved, and, where the group was
    resolved in a release, in that release or after it had run.
    """
    if state is GroupState.RESOLVED and counts:
        return GroupState.REGRESSED
    return state
