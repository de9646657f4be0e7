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

import os
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from celery import Celery

from hardening.store import StateStore, update
from hardening.stores.patient import PatientStore

from .work import Work

__all__ = ["DONE_KEY", "HOLDER_KEY", "RUNNING_KEY", "SUCCESS_KEPT_SECONDS", "Records"]

_Document = dict[str, Any]

DONE_KEY = "twins:done:"
RUNNING_KEY = "twins:running:"
HOLDER_KEY = "twins:holder:"

SUCCESS_KEPT_SECONDS = 12 * 3600.0
"""How long a success refuses copies. A copy comes back when its lease runs out, or its broker is back."""

_MARK_KEPT_SECONDS = 7 * 24 * 3600.0
"""A mark whose holder died counts no longer, and is cleared away after this. A run may last as long."""

_SAYS = "nothing is known of copies of redelivered messages for now, all of them are started"


class Records(PatientStore):
    """The successes and marks of one worker, and those of the others."""

    def __init__(
        self,
        app: Celery,
        *,
        lease_seconds: float,
        store: StateStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(app, _SAYS, store=store, clock=clock)
        self._lease_seconds = lease_seconds
        self.holder = uuid4().hex
        """This worker: a new one with each start, whatever its host name."""
        self.worker = f"process {os.getpid()}"
        """The same for people."""
        self._lives_until = 0.0

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

    def runner_of(self, work: Work) -> str | None:
        """The worker that runs it now, another than this one; None where nobody does, or none is known of."""

        def look(store: StateStore) -> str | None:
            mark = store.read(RUNNING_KEY + work.digest).value or {}
            other = mark.get("holder")
            if not other or other == self.holder or store.read(f"{HOLDER_KEY}{other}").value is None:
                return None
            return str(mark.get("worker"))

        return self.ask(look, None)

    def give_up_mark(self, work: Work) -> bool:
        """Remove this worker's mark. Whether none is left."""
        key = RUNNING_KEY + work.digest

        def remove(store: StateStore) -> bool:
            found = store.read(key)
            if (found.value or {}).get("holder") != self.holder:
                return True
            return store.swap(key, version=found.version, value=None, ttl_seconds=1)

        return self.ask(remove, False)

    def is_alive(self, holder: str) -> bool | None:
        """Whether a worker lives that says so: one that has marks, or other records. None: nobody knows."""
        if holder == self.holder:
            return True
        return self.ask(lambda store: store.read(f"{HOLDER_KEY}{holder}").value is not None, None)

    def be_alive(self) -> None:
        """As `stay_alive`, unless it was said a moment ago: before a record that counts while we live."""
        if self._clock() >= self._lives_until - self._lease_seconds / 2:
            self.stay_alive()

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
        ask = getattr(self.opened(), "key_on_broker", None)
        return ask(f"{HOLDER_KEY}{self.holder}", global_prefix) if ask is not None else None

    @property
    def unreachable_with_broker(self) -> bool:
        """Whether the store is left alone now, and is the broker's own Redis."""
        return self.unreachable and self.life_key("") is not None
