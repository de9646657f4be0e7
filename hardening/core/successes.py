"""The port to ask which replays succeeded, and the place where an implementation of it is offered.

For who missed the event `replay_succeeded`: workers record the success of what may have a twin, as a replay
may, before they acknowledge it, and keep it for hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from celery import Celery

from .apps import NoCeleryApp, celery_app
from .loading import BackendError, load_backend

__all__ = ["ReplayedWork", "Successes", "offer_successes", "successes_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedWork:
    """What names the work of a replay: its key, its number, and the body as the worker sees it."""

    delivery_key: str
    replay_number: int
    body: bytes


@runtime_checkable
class Successes(Protocol):
    """Knows successes of replays. An implementation is constructed with the Celery app as `app`."""

    def known(self, works: Sequence[ReplayedWork]) -> list[bool]:
        """For each whether its success is recorded. False also where nobody can be asked now."""
        ...


_offered: list[str] = []
# One for each app: it remembers that its store does not answer.
_made: WeakKeyDictionary[Celery, Successes] = WeakKeyDictionary()


def offer_successes(dotted_path: str) -> None:
    """Called by who keeps the records."""
    _offered[:] = [dotted_path]


def successes_of(app: Celery | None = None) -> Successes | None:
    """Those of an app's workers; None where nobody keeps any, or there is no app."""
    if not _offered:
        return None
    try:
        of = app or celery_app()
        if of not in _made:
            _made[of] = load_backend(Successes, _offered[0], {"app": of})
    except (NoCeleryApp, BackendError):
        return None
    return _made[of]
