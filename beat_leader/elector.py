"""Elector: holds the leader lock for one Beat, from a thread of its own.

The argument. Who may send? Whoever has a Term that is trusted at the moment of sending. A Term is made here,
and nowhere else, of an answer of the lock store that named this holder; its trust counts from before the
request, less a margin (see `beat_leader.term`), so it ends before the store can give the lease to another,
whatever this process, its threads or the network do meanwhile.

- The process dies at any line: the lease runs out, and a standby wins a later epoch.
- It is stopped, or the machine sleeps: the steady clock goes on. When it wakes, `term` is None at once, for
  its trust is compared with that clock each time it is asked, by whoever runs first.
- The thread dies or hangs: nobody renews, the term runs out. The tick may hang as long as it likes without
  harm to the renewals, up to `stuck_seconds`; then this Beat resigns, since one that leads and does not tick
  is no leader, and stands again when a tick ends.
- An answer is lost: what was asked may have been done. A renewal that was done and not answered leaves the
  lease longer than it is trusted, which is safe; a win that was not answered is asked for again, and makes a
  later epoch.
- Between winning and telling the tick store (`open_term`): the term is not visible yet. Dying there is dying.
  The tick store does not answer: the lease is given back, for a leader that cannot write sends nothing.
- The lock store forgets everything: another wins while this one trusts its term still. Its epoch is later,
  because it is above the newest that the tick store has seen, which is read before the lock is asked; the
  tick store refuses the older one from `open_term` on. Neither sends what the other has decided.
- The lock store forgets everything between a win and `open_term`: another may win the same epoch, which the
  tick store does not know yet. So the winner asks the tick store once more before it opens its term, and the
  lock once more after it. Of two with one epoch the lock names one at most after both have asked; one that
  won after the other had opened its term finds its epoch opened.
- It is asked to resign: the term is hidden first, and the lease given back when the tick that may still be in
  it has ended and marked what it sent. A tick that does not end is not waited for.
- The tick store has seen a later epoch than the term's (a lock store that went back to an older state): the
  lease is of no use. It is given back at the next renewal, and a later one asked for.
- The tick says that it cannot work in this term: it was refused, or could not read or write for a lease's
  time. The lease is given back at once, and asked for again after the others had their chance.
- The tick store and the lock store both forget everything at once: nothing protects but the margin.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from .clock import StoreClock, steady
from .lock import LeaderLock, LockUnavailable, Standing
from .register import Register
from .term import Term, Timings
from .ticks import OldEpoch, TickStore, TicksUnavailable

__all__ = ["Elector"]

T = TypeVar("T")

logger = logging.getLogger("beat_leader")

_POLL_SECONDS = 0.5
_PAUSE_LEASES = 2
_LAST_TICK_SECONDS = 1.0
_MOST_TOLD = 100
_STOP_SECONDS = 5.0


class Elector:
    """`term` may be asked by any thread. Everything else of the election happens in one."""

    def __init__(
        self,
        lock: LeaderLock,
        ticks: TickStore,
        register: Register,
        *,
        holder: str,
        timings: Timings,
        clock: StoreClock,
        stuck_seconds: float = 60.0,
        now: Callable[[], float] = steady,
    ) -> None:
        """Raises ValueError for timings that cannot work."""
        problems = timings.problems()
        if problems:
            raise ValueError("; ".join(problems))
        self._lock = lock
        self._ticks = ticks
        self._register = register
        self._holder = holder
        self._timings = timings
        self._clock = clock
        self._stuck_seconds = stuck_seconds
        self._now = now
        self._term: Term | None = None
        self._ticked_at = now()
        self._ticked = 0
        self._told: set[str] = set()
        self._paused_until = 0.0
        self._change = threading.Condition()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._useless: tuple[Term | None, str] = (None, "")
        self._thread: threading.Thread | None = None
        self.epoch = 0
        """The latest that was seen, of whoever leads."""

        self.leader = ""
        """Who led at the last answer; empty: nobody."""

        self.problem = ""
        """Why it can neither lead nor follow now; empty: nothing."""

    # For the thread that ticks

    @property
    def term(self) -> Term | None:
        """The one to send in, trusted now; None: send nothing."""
        term = self._term
        if term is None or self._stopping.is_set() or not term.trusted(self._now()):
            return None
        return term

    def wait(self, seconds: float) -> Term | None:
        """Until this one leads, at most so long."""
        with self._change:
            self._change.wait_for(lambda: self.term is not None, timeout=seconds)
        return self.term

    def ticked(self) -> None:
        """A tick has ended."""
        self._ticked_at = self._now()
        with self._change:
            self._ticked += 1
            self._change.notify_all()

    def give_back(self, why: str) -> None:
        """The term of this moment is of no use: resign soon, and let others stand first."""
        self._useless = (self._term, why)
        self._wake.set()

    def start(self) -> None:
        """Stand for election. Once."""
        self._ticked_at = self._now()
        self._thread = threading.Thread(target=self._run, name="beat-elector", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Resign at once, and stand no more. Raises nothing."""
        self._stopping.set()
        self._wake.set()
        with self._change:
            self._change.notify_all()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOP_SECONDS)

    # The thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                pause = self.turn()
            # The outermost loop of the thread: whatever it is, the term runs out, and the next turn tries.
            except Exception as exc:
                self.problem, pause = (
                    self._once("a turn of the election failed; it goes on", exc),
                    _POLL_SECONDS,
                )
            self._wake.wait(pause)
            self._wake.clear()
        self._resign("resigned")
        with suppress(LockUnavailable):
            self._lock.close()

    def turn(self) -> float:
        """One step; returns the seconds to the next one. Called by the thread, and by tests."""
        if self._term is None:
            return self._stand()
        return self._keep(self._term)

    def _stand(self) -> float:
        now = self._now()
        if now < self._paused_until:
            return min(_POLL_SECONDS, self._paused_until - now)
        if now - self._ticked_at > self._stuck_seconds:
            self.problem = f"its tick has not ended for {now - self._ticked_at:.0f} s: it does not stand"
            return _POLL_SECONDS
        try:
            # Before the lock is asked: see the argument.
            newest = self._ticks.newest_epoch()
            asked_at = self._now()
            standing = self._heard(
                lambda: self._lock.acquire(
                    self._holder, lease_seconds=self._timings.lease_seconds, at_least=newest
                )
            )
        except (LockUnavailable, TicksUnavailable) as exc:
            return self._unsure(str(exc))
        self.problem = ""
        if standing.holder != self._holder:
            # A lease that is over soon is asked for then, and by all standbys at different moments.
            return min(_POLL_SECONDS, standing.remaining_seconds + 0.02) + random.uniform(0.0, 0.05)
        term = Term.won(self._holder, standing.epoch, asked_at=asked_at, timings=self._timings)
        return self._to_renewal(asked_at) if self._open(term) else _POLL_SECONDS

    def _open(self, term: Term) -> bool:
        try:
            confirmed = self._confirmed(term)
        # Whatever it is: a lease that nobody leads in keeps others from leading.
        except Exception as exc:
            with suppress(LockUnavailable):
                self._lock.resign(self._holder, term.epoch)
            if not isinstance(exc, (OldEpoch, TicksUnavailable, LockUnavailable)):
                raise
            self.problem = str(exc)
            return False
        if not confirmed:
            with suppress(LockUnavailable):
                self._lock.resign(self._holder, term.epoch)
            return False
        self._tell(lambda: self._register.term_began(term.epoch, self._holder))
        with self._change:
            self._term = term
            self._change.notify_all()
        logger.info("this Beat leads: epoch %d", term.epoch, extra={"term": term.epoch})
        return True

    def _confirmed(self, term: Term) -> bool:
        """Whether this epoch is this holder's alone: see the argument."""
        if self._ticks.newest_epoch() >= term.epoch:
            return False
        self._ticks.open_term(term.epoch)
        standing = self._heard(
            lambda: self._lock.renew(self._holder, term.epoch, lease_seconds=self._timings.lease_seconds)
        )
        return (standing.holder, standing.epoch) == (self._holder, term.epoch)

    def _keep(self, term: Term) -> float:
        now = self._now()
        if not term.trusted(now):
            self._lose("lost")
            return 0.0
        if self._useless[0] is not None and self._useless[0].epoch == term.epoch:
            self.problem = self._useless[1]
            logger.error("the lease is given back: %s", self.problem, extra={"term": term.epoch})
            self._resign("unable")
            self._paused_until = now + 2 * _POLL_SECONDS
            return _POLL_SECONDS
        if now - self._ticked_at > self._stuck_seconds:
            self.problem = f"its tick has not ended for {now - self._ticked_at:.0f} s: it resigned"
            logger.error("%s", self.problem, extra={"term": term.epoch})
            self._resign("stuck")
            return _POLL_SECONDS
        asked_at = self._now()
        try:
            standing = self._heard(
                lambda: self._lock.renew(self._holder, term.epoch, lease_seconds=self._timings.lease_seconds)
            )
        except LockUnavailable as exc:
            # Trusted as long as it was, and no longer; asked again soon, while that helps.
            return self._unsure(str(exc))
        self.problem = ""
        if (standing.holder, standing.epoch) != (self._holder, term.epoch):
            self._lose("lost")
            return 0.0
        self._term = term.renewed(asked_at=asked_at, timings=self._timings)
        return self._yielded(term) or self._to_renewal(asked_at)

    def _yielded(self, term: Term) -> float | None:
        """The pause after a term that ends though its lease holds; None: it goes on."""
        newest = self._asked(self._ticks.newest_epoch)
        if newest is not None and newest > term.epoch:
            logger.error("the tick store has seen epoch %d already", newest, extra={"term": term.epoch})
            self._resign("lost")
            return _POLL_SECONDS
        by = self._asked(lambda: self._register.asked_to_resign(term.epoch))
        if by is None:
            return None
        logger.warning("%s asked this Beat to resign", by, extra={"term": term.epoch})
        with self._change:
            before, self._term = self._ticked, None
            self._change.wait_for(
                lambda: self._ticked > before or self._stopping.is_set(), timeout=_LAST_TICK_SECONDS
            )
        self._give_back(term, "resigned")
        self._paused_until = self._now() + _PAUSE_LEASES * self._timings.lease_seconds
        return _POLL_SECONDS

    def _to_renewal(self, asked_at: float) -> float:
        return max(0.0, asked_at + self._timings.renew_seconds - self._now())

    def _lose(self, end: str) -> None:
        term, self._term = self._term, None
        if term is not None:
            logger.warning("this Beat leads no more: epoch %d", term.epoch, extra={"term": term.epoch})
            self._tell(lambda: self._register.term_ended(term.epoch, end))

    def _resign(self, end: str) -> None:
        term, self._term = self._term, None
        if term is not None:
            self._give_back(term, end)

    def _give_back(self, term: Term, end: str) -> None:
        with suppress(LockUnavailable):
            self._lock.resign(self._holder, term.epoch)
        self._tell(lambda: self._register.term_ended(term.epoch, end))

    def _heard(self, ask: Callable[[], Standing]) -> Standing:
        """Ask, and take the store's time and who leads out of its answer."""
        asked_at = self._now()
        standing = ask()
        self._clock.heard(
            asked_at=asked_at, answered_at=self._now(), store_now=standing.now, wall=time.time()
        )
        self.leader, self.epoch = standing.holder, standing.epoch
        return standing

    def _unsure(self, why: str) -> float:
        if why != self.problem:
            logger.warning("the election waits: %s", why)
        self.problem = why
        return _POLL_SECONDS

    def _asked(self, question: Callable[[], T]) -> T | None:
        try:
            return question()
        except TicksUnavailable:
            return None

    def _tell(self, do: Callable[[], None]) -> None:
        # For people only: nothing rests on it.
        try:
            do()
        except TicksUnavailable:
            return
        except Exception as exc:
            self._once("the register of Beats failed; the election goes on", exc)

    def _once(self, text: str, exc: Exception) -> str:
        """Log it, unless it was logged before; returns it in words."""
        why = f"{type(exc).__name__}: {exc}"
        if len(self._told) < _MOST_TOLD and why not in self._told:
            self._told.add(why)
            logger.error("%s", text, exc_info=exc)
        return why
