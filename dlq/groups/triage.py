"""What people say of groups. Each is one UPDATE that asks for the state it goes from: the first one wins."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext

from ..conf import database_alias
from ..models import NAME_LENGTH, LetterGroup
from ..text import clean, clip
from .releases import has_run
from .states import GroupState, sources_of_group

__all__ = ["acknowledge", "assign", "note", "reopen", "resolve", "snooze"]

_NOTHING_AWAITED: dict[str, Any] = {
    "snoozed_until": None,
    "snoozed_release": "",
    "resolved_release": "",
    "replay_on_release": False,
}


def acknowledge(fingerprints: Iterable[str], *, by: str, was: str | None = None) -> int:
    """Somebody is at it. Returns how many groups changed; `was`: only those still in this state."""
    return _become(GroupState.ACKNOWLEDGED, fingerprints, by=by, was=was)


def snooze(
    fingerprints: Iterable[str],
    *,
    by: str,
    until: datetime | None = None,
    release: str = "",
    was: str | None = None,
) -> int:
    """Leave alone until a time, or until a release runs. What is snoozed already may be snoozed anew.

    Raises ValueError for what can never end, or is over.
    """
    release = clip(release.strip(), NAME_LENGTH)
    if (until is None) == (not release):
        raise ValueError(gettext("give a time or a release: one of them"))
    if until is not None and until <= timezone.now():
        raise ValueError(gettext("that time is over"))
    if release and has_run(release):
        raise ValueError(gettext("release %(release)s has run already") % {"release": release})
    return _become(
        GroupState.SNOOZED,
        fingerprints,
        by=by,
        was=was,
        again=True,
        snoozed_until=until,
        snoozed_release=release,
    )


def resolve(
    fingerprints: Iterable[str],
    *,
    by: str,
    in_release: str = "",
    replay: bool = False,
    was: str | None = None,
) -> int:
    """Its cause is gone, or will be with a release. `replay`: send its open letters again once that release
    runs. What is resolved already may be resolved anew. Raises ValueError for `replay` without a release."""
    in_release = clip(in_release.strip(), NAME_LENGTH)
    if replay and not in_release:
        raise ValueError(gettext("a replay that waits for a release needs the name of one"))
    return _become(
        GroupState.RESOLVED,
        fingerprints,
        by=by,
        was=was,
        again=True,
        resolved_release=in_release,
        replay_on_release=replay,
    )


def reopen(fingerprints: Iterable[str], *, by: str, was: str | None = None) -> int:
    """Back to open, whatever was said."""
    return _become(GroupState.OPEN, fingerprints, by=by, was=was)


def assign(fingerprints: Iterable[str], *, owner: str, by: str) -> int:
    """Say whose it is; an empty owner: nobody's."""
    return _groups(fingerprints).update(owner=clip(owner.strip(), NAME_LENGTH))


def note(fingerprints: Iterable[str], *, text: str, by: str) -> int:
    """Replace the note."""
    return _groups(fingerprints).update(note=clean(text))


def _become(
    state: GroupState,
    fingerprints: Iterable[str],
    *,
    by: str,
    was: str | None,
    again: bool = False,
    **fields: Any,
) -> int:
    sources = {*sources_of_group(state), *([state] if again else [])}
    if was is not None:
        sources &= {GroupState(was)}
    return (
        _groups(fingerprints)
        .filter(state__in=sorted(sources))
        .update(
            **{
                **_NOTHING_AWAITED,
                "state": state,
                "state_since": timezone.now(),
                "state_by": clip(by, NAME_LENGTH),
                **fields,
            }
        )
    )


def _groups(fingerprints: Iterable[str]) -> QuerySet[LetterGroup]:
    return LetterGroup.objects.using(database_alias()).filter(pk__in=sorted(set(fingerprints))).order_by()
