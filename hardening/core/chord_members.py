"""The port to ask which members of a chord succeeded, and the place where who keeps them is offered.

For who re-runs a chord that failed: its members that failed are dead letters, the others were acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from celery import Celery

from .apps import NoCeleryApp, celery_app
from .letter import DeadLetter
from .loading import BackendError, load_backend

__all__ = ["ChordMembers", "KeptChord", "chord_members_of", "offer_chord_members"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptChord:
    """What is known of a chord. `size`: how many members it counts; None: nobody saw it, or it is forgotten.

    `succeeded`: by their place in the chord, each in the form of a letter. `not_kept`: those that succeeded
    and whose message had no room in the store.
    """

    size: int | None = None
    succeeded: Mapping[int, DeadLetter] = field(default_factory=dict)
    not_kept: frozenset[int] = frozenset()


@runtime_checkable
class ChordMembers(Protocol):
    """Knows members of chords. An implementation is constructed with the Celery app as `app`."""

    def kept(self, group: str, *, most: int) -> KeptChord | None:
        """What is kept of the chord of this group, its first `most` members; None: nobody can tell now."""
        ...


_offered: list[str] = []
# One for each app: it remembers that its store does not answer.
_made: WeakKeyDictionary[Celery, ChordMembers] = WeakKeyDictionary()


def offer_chord_members(dotted_path: str) -> None:
    """Called by who keeps them."""
    _offered[:] = [dotted_path]


def chord_members_of(app: Celery | None = None) -> ChordMembers | None:
    """Those of an app's workers; None where nobody keeps any, or there is no app."""
    if not _offered:
        return None
    try:
        of = app or celery_app()
        if of not in _made:
            _made[of] = load_backend(ChordMembers, _offered[0], {"app": of})
    except (NoCeleryApp, BackendError):
        return None
    return _made[of]
