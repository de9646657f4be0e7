"""What all workers know of twins: successes, and who runs a message, in the store of shared state.

    twins:done:{digest}      the first success of a work
    twins:running:{digest}   which holder runs it: a mark
    twins:holder:{holder}    that the holder lives: renewed every few seconds, gone with its lease

The argument. A holder is one start of a worker's process. A mark counts as long as its holder lives, which
is one document for all its marks, so that renewing costs the same with one mark and with hundreds. A worker
says that it lives before it takes its first mark. A dead holder's mark is taken over by compare-and-set:
one of several who find it so may start. Who has the mark looks for a success only then, and who succeeded
wrote that before it gave up its mark: none of the two can miss the other.

Which way it fails: admit. A store that does not answer refuses no start; it is left alone for some seconds
and said so at most once a minute. Where it is the Redis that keeps the leases, a copy waits instead: without
it nothing could be acknowledged either.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import uuid4

from celery import Celery

from hardening.conf import load_settings
from hardening.core.loading import BackendError
from hardening.store import StateStore, StoreBusy, StoreUnavailable, chosen_store, update

from .work import Work

__all__ = ["DONE_KEY", "HOLDER_KEY", "RUNNING_KEY", "SUCCESS_KEPT_SECONDS", "Records"]

logger = logging.getLogger("hardening")

T = TypeVar("T")
_Document = dict[str, Any]

DONE_KEY = "twins:done:"
RUNNING_KEY = "twins:running:"
HOLDER_KEY = "twins:holder:"

SUCCESS_KEPT_SECONDS = 12 * 3600.0
"""How long a success refuses copies. A copy comes back when its lease runs out, or its broker is back."""

_MARK_KEPT_SECONDS = 7 * 24 * 3600.0
"""A mark whose holder died counts no longer, and is cleared away after this. A run may last as long."""

_LEFT_ALONE_SECONDS = 5.0
_LEFT_ALONE_LONGEST = 60.0
_LONG_SECONDS = 1.0
"""The main loop waits for the answers: a store that keeps it waiting so long is left alone as well."""

_SAID_EVERY_SECONDS = 60.0


class Records:
    """The successes and marks of one worker, and those of the others."""

    def __init__(
        self,
        app: Celery,
        *,
        lease_seconds: float,
        store: StateStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._lease_seconds = lease_seconds
        self._store = store
        self._clock = clock
        self.holder = uuid4().hex
        """This worker: a new one with each start, whatever its host name."""
        self.worker = f"process {os.getpid()}"
        """The same for people."""
        self._lives_until = 0.0
        self._down_until = 0.0
        self._left_alone = _LEFT_ALONE_SECONDS
        self._silent_until = 0.0

    def success_of(self, work: Work) -> dict[str, Any] | None:
        """The success that is recorded; None where there is none, or none is known of."""
        return self.ask(lambda store: store.read(DONE_KEY + work.digest).value, None)

    def record_success(self, work: Work) -> dict[str, Any] | None:
        """Record one, unless it was done already: then that success is returned."""

        def change(found: _Document | None, now: float) -> tuple[_Document | None, _Document | None]:
            return ({"at": now, "worker": self.worker}, None) if found is None else (found, found)

        key = DONE_KEY + work.digest
        return self.ask(lambda store: update(store, key, change, ttl_seconds=SUCCESS_KEPT_SECONDS), None)

    def take_mark(self, work: Work) -> tuple[bool, str | None]:
        """Whether this worker has the mark now; else the worker that has it.

        (False, None) where the store does not answer: this worker may have it or not.
        """
        unknown: tuple[bool, str | None] = (False, None)
        return self.ask(lambda store: self._take(store, RUNNING_KEY + work.digest), unknown)

    def _take(self, store: StateStore, key: str) -> tuple[bool, str | None]:
        if self._clock() >= self._lives_until - self._lease_seconds / 2:
            self._say_alive(store)
        found = store.read(key)
        other = (found.value or {}).get("holder")
        if other == self.holder:
            return True, None
        if other and store.read(f"{HOLDER_KEY}{other}").value is not None:
            return False, str((found.value or {}).get("worker"))
        mine = {"holder": self.holder, "worker": self.worker, "at": found.now}
        if store.swap(key, version=found.version, value=mine, ttl_seconds=_MARK_KEPT_SECONDS):
            return True, None
        return False, "another worker that was faster"

    def give_up_mark(self, work: Work) -> bool:
        """Remove this worker's mark. Whether none is left."""
        key = RUNNING_KEY + work.digest

        def remove(store: StateStore) -> bool:
            found = store.read(key)
            if (found.value or {}).get("holder") != self.holder:
                return True
            return store.swap(key, version=found.version, value=None, ttl_seconds=1)

        return self.ask(remove, False)

    def stay_alive(self) -> None:
        """Renew this worker's marks, all of them."""
        self.ask(self._say_alive, None)

    def _say_alive(self, store: StateStore) -> None:
        asked_at = self._clock()
        update(
            store,
            f"{HOLDER_KEY}{self.holder}",
            lambda _, now: ({"at": now, "worker": self.worker}, None),
            ttl_seconds=self._lease_seconds,
        )
        self._lives_until = asked_at + self._lease_seconds

    def life_key(self, global_prefix: str) -> str | None:
        """The key that says that this worker lives, where the store is the broker's own Redis."""
        ask = getattr(self._opened(), "key_on_broker", None)
        return ask(f"{HOLDER_KEY}{self.holder}", global_prefix) if ask is not None else None

    @property
    def unreachable_with_broker(self) -> bool:
        """Whether the store is left alone now, and is the broker's own Redis."""
        return self.unreachable and self.life_key("") is not None

    def _opened(self) -> StateStore:
        if self._store is None:
            self._store = chosen_store(self._app, load_settings()[0])
        return self._store

    @property
    def unreachable(self) -> bool:
        """Whether the store is left alone now."""
        return self._clock() < self._down_until

    def ask(self, question: Callable[[StateStore], T], otherwise: T) -> T:
        """What the store says; `otherwise` where it does not answer."""
        if self.unreachable:
            return otherwise
        asked_at = self._clock()
        try:
            answer = question(self._opened())
        # Whatever the store raises: admit, and say so.
        except Exception as exc:
            waited = self._clock() - asked_at >= _LONG_SECONDS
            if isinstance(exc, (StoreUnavailable, BackendError)) and (
                waited or not isinstance(exc, StoreBusy)
            ):
                self._down_until = self._clock() + self._left_alone
                self._left_alone = min(self._left_alone * 2, _LEFT_ALONE_LONGEST)
            self._say_down(exc)
            return otherwise
        self._left_alone = _LEFT_ALONE_SECONDS
        return answer

    def _say_down(self, exc: Exception) -> None:
        if self._clock() >= self._silent_until:
            self._silent_until = self._clock() + _SAID_EVERY_SECONDS
            logger.warning(
                "nothing is known of copies of redelivered messages for now, all of them are started: %s", exc
            )
