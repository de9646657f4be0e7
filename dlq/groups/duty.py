"""What keeps groups up to date: in every worker, from time to time, and by hand. Bounded in time.

In a worker's parent nothing may take long. So batches grow and shrink with the time that they take; nobody's
lock is waited for; a database that does not answer is left (see `slice_connection`), and not asked again for
_PAUSE_SECONDS. A worker looks every COUNT_EVERY_SECONDS, and at each of its turns while there is more to do.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from random import uniform
from typing import Any

from django.db import DatabaseError, InterfaceError

from hardening.core.connection import drop_connection, own_connection

from ..brief import slice_connection
from ..conf import database_alias, dlq_settings
from ..text import without_credentials
from .counting import count_new_letters
from .forgetting import forget_old_figures
from .releases import MOST_IN_A_TURN, note_release, replay_due, running_release, settle_releases, wake_snoozed

__all__ = ["TURN_SECONDS", "Tended", "groups_duty", "tend", "tend_lazily"]

TURN_SECONDS = 0.5
_SHARE_SECONDS = 0.2
_LAZY_SECONDS = 0.1
_LAZY_EVERY_SECONDS = 2.0
_PAUSE_SECONDS = 15.0
_SMALLEST, _LARGEST = 250, 5000
_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Tended:
    """What was done. `more`: there was no time for all of it."""

    letters: int = 0
    new_groups: list[str] = field(default_factory=list)
    regressed: list[str] = field(default_factory=list)
    woken: int = 0
    replays: list[str] = field(default_factory=list)
    forgotten: int = 0
    more: bool = False
    busy: bool = False
    """Somebody else counted at the same time."""

    def add(self, later: Tended) -> None:
        """What was done after it."""
        self.letters += later.letters
        self.new_groups += later.new_groups
        self.regressed += later.regressed
        self.woken += later.woken
        self.replays += later.replays
        self.forgotten += later.forgotten
        self.more, self.busy = later.more, later.busy


@dataclass(slots=True)
class _Memory:
    """Of this process."""

    batch: int = 500
    not_before: float = 0.0
    lazily_at: float = 0.0


_memory = _Memory()


def tend(seconds: float = _SHARE_SECONDS, *, by_hand: bool = False) -> Tended:
    """Count letters, wake groups, begin replays that waited for a release, drop old figures.

    Takes about `seconds`, on a connection of its own where the caller's is in a transaction. Raises what the
    database raises; what was done by then is done. `by_hand`: no worker's parent waits for it, so that the
    database may take its time, and a replay may be of more than MOST_IN_A_TURN letters.
    """
    deadline = time.monotonic() + seconds
    alias = database_alias()
    done = Tended()
    with own_connection(alias) if by_hand else slice_connection(alias):
        _count(done, deadline, alias)
        settle_releases()
        done.woken = wake_snoozed()
        done.replays = [
            str(operation.pk) for operation in replay_due(most=None if by_hand else MOST_IN_A_TURN)
        ]
        if not done.more:
            done.forgotten = forget_old_figures(alias=alias)
    return done


def tend_lazily() -> None:
    """A little of it, for a page that is about to show groups: never raises, and seldom does anything."""
    now = time.monotonic()
    if now < max(_memory.lazily_at, _memory.not_before):
        return
    _memory.lazily_at = now + _LAZY_EVERY_SECONDS
    try:
        tend(_LAZY_SECONDS)
    # The page is of more use without it than not at all.
    except Exception as exc:
        _memory.not_before = time.monotonic() + _PAUSE_SECONDS
        _log.warning("groups were not brought up to date: %s", _shown(exc))


def groups_duty(app: Any) -> None:
    """The periodic form, for a worker's parent process: leaves no database connection open."""
    if time.monotonic() < _memory.not_before:
        return
    pause = dlq_settings().count_every_seconds * uniform(0.8, 1.2)
    try:
        with slice_connection(database_alias()):
            note_release(running_release())
            done = tend()
    # No fault of this worker: the database is down, or somebody else writes (SQLite).
    except (DatabaseError, InterfaceError) as exc:
        busy = "locked" in str(exc).lower()
        pause = 0.0 if busy else max(pause, _PAUSE_SECONDS)
        _log.log(
            logging.DEBUG if busy else logging.WARNING, "letters stay uncounted for now: %s", _shown(exc)
        )
    else:
        pause = 0.0 if done.more and not done.busy else pause
        _tell(done)
    finally:
        drop_connection(database_alias())
        _memory.not_before = time.monotonic() + pause


def _count(done: Tended, deadline: float, alias: str) -> None:
    limit = _memory.batch
    while True:
        began = time.monotonic()
        counted = count_new_letters(limit, alias=alias)
        took = time.monotonic() - began
        if limit == _memory.batch:
            _memory.batch = _next_batch(limit, took, full=counted.letters >= limit // 2)
        done.letters += counted.letters
        done.new_groups += counted.new_groups
        done.regressed += counted.regressed
        done.more, done.busy = counted.more, counted.busy
        # A little is done at each turn, however slow the database is; then only what fits.
        left = deadline - time.monotonic()
        if not counted.more or not counted.letters or left < took / 2:
            return
        limit = max(_SMALLEST, int(min(_memory.batch, limit * left / took)))


def _next_batch(batch: int, took: float, *, full: bool) -> int:
    """From how long one took, how large the next one is. Large ones cost less a letter: about one a turn."""
    if took > _SHARE_SECONDS:
        return max(_SMALLEST, int(batch * 0.7))
    return min(_LARGEST, int(batch * 1.5)) if full and took < _SHARE_SECONDS * 0.75 else batch


def _tell(done: Tended) -> None:
    for fingerprint in done.regressed:
        _log.warning(
            "the group %s was resolved, and letters come again", fingerprint, extra={"group": fingerprint}
        )
    for operation in done.replays:
        _log.info(
            "a group waited for a release that runs now: its replay begins as operation %s",
            operation,
            extra={"operation": operation},
        )


def _shown(exc: Exception) -> str:
    return f"{type(exc).__name__}: {without_credentials(str(exc).strip())}"
