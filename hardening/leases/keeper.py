"""The keeper: renews what the worker holds, and gives to others what silent workers held.

A thread of its own, so that it goes on while a task blocks the main loop: a gevent hub, a solo worker, a
signal handler that waits. With a Redis client of its own, and without logging: what it has to say becomes
news, which the main loop reads.

Fork. A prefork worker forks while this thread lives. A lock that it held at that moment would stay locked
in the child for ever, so it works only with the fork gate in its hand, which every fork waits for: a
child always finds it asleep. A turn ends soon, as its client has short time-outs.

The process dies: the thread is dead with it, leases run out. The main loop is wedged: the thread stops
renewing after `wedged_after`, the same follows. Redis does not answer: nothing can be renewed, and nothing
can be given to others either; what Redis lost meanwhile is held again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from .envelope import as_recovered
from .holdings import Holdings, News, NewsOf
from .native import allocate_lock, sleep, start_thread
from .terms import Lease

if TYPE_CHECKING:  # redis-py is there only where Redis is the broker.
    from .store import LeaseStore

__all__ = ["SWEEP_EVERY_SECONDS", "Keeper"]

SWEEP_EVERY_SECONDS = 1.0
_SWEEP_AT_ONCE = 100
_SWEEP_SECONDS = 0.5
_LONGEST_NAP_SECONDS = 0.25


class Keeper:
    """The thread of one worker. Its methods are for the main loop."""

    def __init__(self, holdings: Holdings, lease: Lease, clock: Callable[[], float] = time.monotonic) -> None:
        self._holdings = holdings
        self._lease = lease
        self._clock = clock
        self._gate = allocate_lock()
        self._pid = os.getpid()
        self._open: Callable[[], LeaseStore] | None = None
        self._store: LeaseStore | None = None
        self._alive = False
        self._beat = clock()
        self._excused = 0
        self._wedged = False
        self.also: str | None = None
        """A key that lives as long as the worker does, and is renewed with its leases."""

        self._renew_at = self._sweep_at = clock()
        _keepers.add(self)

    def use(self, open_store: Callable[[], LeaseStore]) -> None:
        """Ask another Redis from now on; the connection is opened by the thread."""
        with self._gate:
            self._drop()
            self._open = open_store

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if not self._alive:
            self._alive = True
            start_thread(self._run)

    def stop(self) -> None:
        """End it; when this returns, nothing more is renewed."""
        with self._gate:
            self._alive = False
            self._drop()

    def beat(self) -> None:
        """The main loop works."""
        self._beat = self._clock()

    def excuse(self) -> None:
        """The main loop is about to wait for something that has a bound of its own."""
        self._excused += 1

    def back(self) -> None:
        """That wait is over."""
        self._excused = max(0, self._excused - 1)
        self.beat()

    def turn(self) -> None:
        """What is due now. Never raises."""
        now = self._clock()
        if self._open is None or min(self._renew_at, self._sweep_at) > now:
            return
        try:
            store = self._store = self._store or self._open()
            if self._renew_at <= now:
                self._renew(store, now)
                self._renew_at = now + self._lease.renew_every
            if self._sweep_at <= now:
                more = self._sweep(store)
                self._sweep_at = self._clock() if more else now + SWEEP_EVERY_SECONDS
        # The thread must go on, whatever Redis or the network did.
        except Exception as exc:
            self._drop()
            self._sweep_at = self._clock() + SWEEP_EVERY_SECONDS
            self._renew_at = min(self._renew_at, self._sweep_at)
            self._holdings.news.append(News(NewsOf.FAILED, about=f"{type(exc).__name__}: {exc}"))

    def _renew(self, store: LeaseStore, now: float) -> None:
        silent = 0.0 if self._excused else now - self._beat
        if silent > self._lease.wedged_after:
            if not self._wedged:
                self._wedged = True
                self._holdings.news.append(News(NewsOf.WEDGED, about=f"{silent:.0f} s"))
            return
        self._wedged = False
        if self.also is not None:
            store.client.pexpire(self.also, int(self._lease.seconds * 1000))
        tags = self._holdings.tags()
        if tags:
            self._holdings.renewed(tags, now, store.renew(tags), store)

    def _sweep(self, store: LeaseStore) -> bool:
        """Give to others what silent workers held. Whether there is more: our own leases come first."""
        until = self._clock() + _SWEEP_SECONDS
        while True:
            found = store.recover(_SWEEP_AT_ONCE, as_recovered)
            news = self._holdings.news
            news += [
                News(NewsOf.RECOVERED, each.tag, about=each.holder, task=(each.task_name, each.task_id))
                for each in found.restored
            ]
            news += [News(NewsOf.FAILED, tag, about=f"{tag}: {why}") for tag, why in found.failed]
            if not found.more or self._clock() >= until:
                return found.more

    def _run(self) -> None:
        while self._alive and self._pid == os.getpid():
            with self._gate:
                if self._alive:
                    self.turn()
            due = min(self._renew_at, self._sweep_at) - self._clock()
            sleep(min(max(due, 0.01), _LONGEST_NAP_SECONDS))

    def _drop(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.client.connection_pool.disconnect()


_keepers: WeakSet[Keeper] = WeakSet()
_held: list[Any] = []


def _before_fork() -> None:
    for keeper in list(_keepers):
        gate = keeper._gate
        gate.acquire()
        _held.append(gate)


def _after_fork() -> None:
    while _held:
        _held.pop().release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
