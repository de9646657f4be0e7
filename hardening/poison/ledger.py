"""The ledger: the cases of suspected works in the store of shared state, one document each.

    poison:{digest}    a case (see `case`), until the window is over

The argument. A case changes by compare-and-set, each change naming the start that it is about, so that a
change which is made twice, after a lost answer, is one. A store that does not answer refuses no start: what
would have been written is remembered here, in order and bounded, counts for the decisions of this process,
and is written as soon as the store takes it. Dying meanwhile forgets it: the deaths of those minutes.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from celery import Celery

from hardening.store import StateStore, update
from hardening.stores.patient import PatientStore

from .case import NOTHING, Case

__all__ = ["KEY", "Change", "Ledger", "Seen"]

KEY = "poison:"

Change = Callable[[Case, float], Case]
"""From what is known at a time to what is known then. Without effects; made twice, it is one."""

_MOST_OWED = 1000
_MOST_CHANGES = 60
_WRITTEN_AT_ONCE = 20
_SAYS = "deaths of tasks cannot be counted over all workers for now, and every task is started"


@dataclass(frozen=True, slots=True)
class Seen:
    """A case, as it is now."""

    case: Case
    now: float
    known: bool
    """Whether the store said so."""


class Ledger:
    """The cases, as one worker reads and writes them. Safe in greenlets and threads as its store is."""

    def __init__(
        self,
        app: Celery,
        *,
        ttl_seconds: float,
        store: StateStore | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store = PatientStore(app, _SAYS, store=store, clock=clock)
        self._ttl = ttl_seconds
        self._wall = wall
        self._owed: OrderedDict[str, list[Change]] = OrderedDict()

    def look(self, digest: str) -> Seen:
        """What is known of a work."""
        entry = self._store.ask(lambda store: store.read(KEY + digest), None)
        now = self._wall() if entry is None else entry.now
        case = NOTHING if entry is None else Case.read(entry.value)
        return Seen(_changed(case, self._owed.get(digest, []), now), now, entry is not None)

    def change(self, digest: str, change: Change) -> Seen:
        """Change what is known; what it is then. Written at once, or as soon as the store answers."""
        changes = [*self._owed.pop(digest, []), change]

        def apply(found: Mapping[str, Any] | None, now: float) -> tuple[dict[str, Any] | None, Seen]:
            case = _changed(Case.read(found), changes, now)
            return case.document(), Seen(case, now, True)

        seen = self._store.ask(lambda store: update(store, KEY + digest, apply, ttl_seconds=self._ttl), None)
        if seen is not None:
            return seen
        now = self._wall()
        changes[-1] = lambda case, _: change(case, now)
        self._owe(digest, changes)
        return Seen(_changed(NOTHING, changes, now), now, False)

    def write_owed(self) -> None:
        """Write what the store did not take, if it does now."""
        for digest in list(self._owed)[:_WRITTEN_AT_ONCE]:
            if self._store.unreachable:
                return
            if digest in self._owed:
                self.change(digest, lambda case, _: case)

    def _owe(self, digest: str, changes: list[Change]) -> None:
        kept = [*changes, *self._owed.pop(digest, [])][-_MOST_CHANGES:]
        self._owed[digest] = kept
        if len(self._owed) > _MOST_OWED:
            self._owed.popitem(last=False)


def _changed(case: Case, changes: list[Change], now: float) -> Case:
    for change in changes:
        case = change(case, now)
    return case
