"""What people said of a group, handed on to the group that its letters belong to now. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from .states import GroupState

__all__ = ["Said", "inherited"]

# The one that needs people most comes first.
_URGENCY = (
    GroupState.REGRESSED,
    GroupState.OPEN,
    GroupState.ACKNOWLEDGED,
    GroupState.SNOOZED,
    GroupState.RESOLVED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The names are those of the columns of LetterGroup."""

    state: str
    state_since: datetime
    state_by: str
    owner: str
    note: str
    snoozed_until: datetime | None
    snoozed_release: str
    resolved_release: str
    replay_on_release: bool

    @property
    def is_untouched(self) -> bool:
        """Nobody said anything yet."""
        return self.state == GroupState.OPEN and not (self.state_by or self.owner or self.note)


def inherited(old: Said, new: Said, *, new_last_seen_at: datetime) -> Said:
    """What the new group says from now on. Nothing that somebody wrote is lost.

    A new group of which nobody said anything takes all of the old one; if that was resolved and letters came
    since, it is regressed. Else the state that needs people more stays: no open group vanishes in a resolved
    one.
    """
    if new.is_untouched:
        failed_since = new_last_seen_at > old.state_since and not old.resolved_release
        if old.state == GroupState.RESOLVED and failed_since:
            return replace(old, state=GroupState.REGRESSED.value, state_by="", replay_on_release=False)
        return old
    chosen = old if _rank(old.state) < _rank(new.state) else new
    notes = [new.note] if old.note in new.note else [new.note, old.note]
    return replace(chosen, owner=new.owner or old.owner, note="\n".join(note for note in notes if note))


def _rank(state: str) -> int:
    return _URGENCY.index(GroupState(state))
