"""The worker's copy of what is revoked, in the sets that Celery asks before it runs a task.

Celery looks there for each message, so a message costs nothing more. The copy is brought up to date before
the first message of each connection and every few seconds: one question, for what is new since the last
answer. So a broadcast that was missed is made up for within seconds, and a task that has not begun by then
does not begin.

What came by broadcast and not from the store stays as Celery keeps it. What the store knew and has
forgotten, or an operator took back, leaves the copy.

Dying at any line loses nothing that the store has. Between Celery's broadcast and our write the revoke is in
memory only, of this and of every other worker that heard it; each of them writes. One that cannot is kept
and written at a later look.

The questions overlap: a database stamps a row before others see it, and clocks are set. A store whose time
is behind that of its last answer is asked for everything.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from celery import Celery
from celery.utils.functional import maybe_list
from celery.worker import state

from hardening.conf import load_settings

from .control import keep, shown
from .rules import Revoke
from .store import Changes, chosen_revoked

__all__ = ["Mirror", "mirror_of"]

logger = logging.getLogger("hardening")

OVERLAP_SECONDS = 15.0
CHECK_EVERY_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 60.0
_SAY_EVERY_SECONDS = 60.0


class Mirror:
    """Of one app in a worker's parent process. Safe in threads and greenlets."""

    def __init__(self, app: Celery, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        self._lock = threading.RLock()
        self._known: dict[Revoke, float] = {}
        """What the store has, and until when by its clock."""
        self._unwritten: dict[Revoke, None] = {}
        self._since: float | None = None
        self._asked_again_at = 0.0
        self._pause = _FIRST_PAUSE_SECONDS
        self._said_at = -_SAY_EVERY_SECONDS
        self._check_at = 0.0
        self._down = False
        _make_room()

    def look(self, *, at_once: bool = False) -> None:
        """Learn what is new. A store that does not answer is asked less often, unless `at_once`."""
        with self._lock:
            if not at_once and self._clock() < self._asked_again_at:
                return
            try:
                self._write_rest()
                store = chosen_revoked(self._app)
                changes = store.changes(self._since)
                if self._since is not None and changes.now < self._since:
                    changes = store.changes()
            # A worker runs without it, as Celery's does; and a project's settings may raise anything.
            except Exception as exc:
                self._fail(exc)
                return
            self._since = changes.now - OVERLAP_SECONDS
            self._take(changes)
            self._recover()

    def heard(self, revokes: Iterable[Revoke]) -> None:
        """A broadcast came: write it down, unless the store has been silent; then at the next look."""
        with self._lock:
            self._unwritten.update(dict.fromkeys(revokes))
            if self._clock() < self._asked_again_at:
                self._say(f"{shown(list(self._unwritten))}: not kept yet")
                return
            try:
                self._write_rest()
            except Exception as exc:  # As above.
                self._fail(exc)

    def _write_rest(self) -> None:
        keep(self._app, list(self._unwritten))
        self._unwritten.clear()

    def _take(self, changes: Changes) -> None:
        for mark in changes.revoked:
            if mark.revoke not in self._known:
                _put(mark.revoke)
            self._known[mark.revoke] = mark.until
        for revoke in changes.forgotten:
            self._known.pop(revoke, None)
            _drop(revoke)
        if self._clock() >= self._check_at:
            self._check_at = self._clock() + CHECK_EVERY_SECONDS
            self._check(changes.now)

    def _check(self, now: float) -> None:
        """Drop what has expired by the store's clock, and put back what Celery's set has dropped."""
        for revoke in [revoke for revoke, until in self._known.items() if until <= now]:
            del self._known[revoke]
            _drop(revoke)
        for revoke in self._known:
            _put(revoke)

    def _fail(self, exc: Exception) -> None:
        self._down = True
        self._asked_again_at = self._clock() + self._pause
        self._pause = min(_LONGEST_PAUSE_SECONDS, 2 * self._pause)
        most = load_settings()[0].revoked_rules.most
        for revoke in list(self._unwritten)[: max(0, len(self._unwritten) - int(most))]:
            del self._unwritten[revoke]
        self._say(str(exc))

    def _recover(self) -> None:
        self._asked_again_at, self._pause, self._said_at = 0.0, _FIRST_PAUSE_SECONDS, -_SAY_EVERY_SECONDS
        if self._down:
            self._down = False
            logger.warning("what is revoked can be read and kept again")

    def _say(self, why: str) -> None:
        if self._clock() >= self._said_at + _SAY_EVERY_SECONDS:
            self._said_at = self._clock()
            logger.error(
                "what is revoked cannot be read or kept now; this worker knows what it heard and tries "
                "again: %s",
                why,
            )


def mirror_of(app: Celery) -> Mirror:
    """The one of this app and process; it outlives connections."""
    found = _mirrors.get(app)
    if found is None:
        found = _mirrors[app] = Mirror(app)
    return found


_mirrors: WeakKeyDictionary[Celery, Mirror] = WeakKeyDictionary()


def _make_room() -> None:
    """Celery's own set lets ids go by the time since the worker heard of them, and by their number; it must
    hold what the store has, beside what Celery puts there itself."""
    rules = load_settings()[0].revoked_rules
    ids: Any = state.revoked
    ids.expires = max(ids.expires, rules.expires)
    ids.maxlen = max(ids.maxlen, state.REVOKES_MAX + int(rules.most))


def _put(revoke: Revoke) -> None:
    ids: Any = state.revoked
    if revoke.header is None:
        if revoke.value not in ids:
            ids.add(revoke.value)
        return
    stamps: dict[str, Any] = state.revoked_stamps
    values = list(maybe_list(stamps.get(revoke.header)) or ())
    if revoke.value not in values:
        stamps[revoke.header] = [*values, revoke.value]


def _drop(revoke: Revoke) -> None:
    ids: Any = state.revoked
    if revoke.header is None:
        ids.discard(revoke.value)
        return
    stamps: dict[str, Any] = state.revoked_stamps
    values = [value for value in maybe_list(stamps.get(revoke.header)) or () if value != revoke.value]
    stamps.pop(revoke.header, None)
    if values:
        stamps[revoke.header] = values
