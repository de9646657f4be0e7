"""Poison: which starts of this worker are counted, what a death means, and what a message may still do.

Who holds what. The message is with the broker until it is acknowledged, whatever is decided here. The case
of a work (see `case`) is in the store. Only suspects have one: messages that were delivered before, retries
of them, works that carry a key, and tasks that are allowed one start only. All others cost nothing.

- A child dies: this process is alive, and writes the death before the message goes back. It dies between the
  two: the death is known, and the message comes back. It dies before: as the next.
- The worker dies: the message comes back, and who gets it finds the start that the worker had written and
  never ended. The twins have let it pass, so the worker is gone: a death. A start whose worker lives, as of
  another message with the same key, is none.
- The first start was written by nobody. That its worker is gone is known: on Redis from the message itself,
  which a sweep has marked, on RabbitMQ since it was redelivered and nobody has noted that it was given back.
  Whether it had begun is not known: it may have waited in the worker behind the one that killed it. So it is
  suspected only, and counts from the first death on that is known of the same work: what kills, kills each
  time, and what never does is never charged.
- A start ends in any other way: it is taken off before the broker is told. What the store does not take is
  written later; until then this worker lives, and its starts are no deaths.
- The work succeeds: its case is deleted before the acknowledgement. Dying between: it is done, says its twin.
- The work is given up: its case keeps the name of the publish that has its letter, as long as successes are
  kept, and its copies end without a start. The same task id sent anew is another publish and starts; so does
  a replay. Where nothing tells publishes apart no name is kept: copies then start as often as before.

A start is written before the body begins: on prefork when it is handed over to the pool, which has a free
process at that moment, as on solo; elsewhere in the thread or greenlet that is about to run it. A worker
that dies in the milliseconds between is charged for it.

Which way it fails: admit (see `ledger`).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4
from weakref import ReferenceType, WeakKeyDictionary, ref

from celery import Celery

from hardening.conf import load_settings
from hardening.core.identity import MOVED_HEADER, RECOVERED_HEADER, SUSPECT_HEADER
from hardening.twins.here import dies_with_channel, is_severed
from hardening.twins.watch import Twins, twins_for

from .case import GIVEN_UP_SECONDS, Case, Death, Start
from .death import death_from
from .ledger import Ledger, Seen
from .memory import MemoryWatch
from .policy import Decision, Next, decide
from .returned import was_returned
from .telling import tell_death, tell_orphan
from .terms import Poison, task_terms
from .work import digest_of, is_suspect, publish_digest_of

__all__ = ["PoisonWatch", "Suspect", "poison_for"]


@dataclass(slots=True)
class Suspect:
    """A request whose starts are counted."""

    digest: str
    name: str = ""
    """Of its publish, if it has one; see `work.publish_digest_of`."""

    start_id: str = ""
    """Of the start that is written and has not ended."""


class PoisonWatch:
    """What one worker knows of poison. Used from its main loop, and from its greenlets and threads."""

    def __init__(
        self,
        app: Celery,
        *,
        terms: Poison | None = None,
        ledger: Ledger | None = None,
        twins: Twins | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app = app
        self.terms = terms or load_settings()[0].poison_terms
        self.ledger = ledger or Ledger(app, ttl_seconds=max(self.terms.window, GIVEN_UP_SECONDS))
        self.twins = twins or twins_for(app)
        self.twins.lives_for_others = self._has_starts
        self.memory = MemoryWatch()
        self.at_hand_over = False
        """Whether a start is written when it is handed to the pool: where it begins at once."""

        self.worker = ""
        self._clock = clock
        self._running: dict[str, tuple[str, ReferenceType[Any]]] = {}
        self._of_tasks: dict[str, Poison] = {}

    def terms_of(self, task: Any) -> Poison:
        """What one task is allowed."""
        found = self._of_tasks.get(task.name)
        if found is None:
            found = self._of_tasks[task.name] = task_terms(task, self.terms)[0]
        return found

    # Reception

    def look(self, arrival: Any) -> tuple[Seen, Decision]:
        """What is known of a message that came, and what follows. Writes what its coming back says."""
        message = arrival.message
        digest = digest_of(message)
        seen = self.ledger.look(digest)
        refused = self._decide(seen, arrival.task, message)
        if refused.next is Next.REFUSE:
            return seen, refused
        dead = [start for start in seen.case.starts if self._is_gone(start)]
        holder = None if dead or seen.case.is_known else self._evidence(message, digest)
        if dead or holder is not None:

            def learn(case: Case, now: float) -> Case:
                case = case.gone(dead, now)
                return case if holder is None else case.suspect(holder, now)

            before = len(seen.case.deaths)
            seen = self.ledger.change(digest, learn)
            if dead and len(seen.case.deaths) > before:
                self._tell_death(arrival.task, message, seen.case, seen.case.deaths[-1])
            if holder is not None and dies_with_channel(message):  # On Redis who sweeps tells it.
                tell_orphan(self.app, arrival.task, message, holder=holder, found_by=self.worker)
        return seen, self._decide(seen, arrival.task, message)

    def _decide(self, seen: Seen, task: Any, message: Any) -> Decision:
        terms = self.terms_of(task)
        queue = terms.last_try_queue
        info = message.delivery_info or {}
        moved = queue is None or MOVED_HEADER in message.headers or info.get("routing_key") == queue
        name = publish_digest_of(message) if seen.case.given_up else ""
        return decide(seen.case, terms, seen.now, moved=moved, name=name)

    def _is_gone(self, start: Start) -> bool:
        if start.holder == self.twins.holder:
            return False  # It ended here, which is still to be written; or it runs.
        return self.twins.is_alive(start.holder) is False

    def _evidence(self, message: Any, digest: str) -> str | None:
        """The holder that had the message and is gone; None where nothing says so."""
        if not (message.delivery_info or {}).get("redelivered"):
            return None
        told = message.headers.get(RECOVERED_HEADER)
        if isinstance(told, dict):
            return str(told.get("holder") or "")
        if not dies_with_channel(message):
            return None
        return None if was_returned(self.app, digest) else ""

    # Requests

    def concerns(self, request: Any) -> Suspect | None:
        """The suspect that a request is. Its retries say that they are of one."""
        task = request.task
        if not task.acks_late:
            return None  # It is acknowledged before it runs, and never comes back.
        if is_suspect(request.message):
            request.request_dict[SUSPECT_HEADER] = True
        elif self.terms_of(task).limit > 1:
            return None
        return Suspect(digest_of(request.message), publish_digest_of(request.message))

    def begin(self, request: Any) -> tuple[Case, Decision] | None:
        """Write that a start begins. None: it may. Else it may not: others of its work died meanwhile."""
        suspect: Suspect | None = request.suspect
        if suspect is None or suspect.start_id:
            return None
        self.twins.be_alive()
        terms = self.terms_of(request.task)
        start = Start(
            id=uuid4().hex,
            holder=self.twins.holder,
            worker=str(request.hostname or self.worker),
            host=socket.gethostname(),
        )

        def record(case: Case, now: float) -> Case:
            if decide(case, terms, now, name=suspect.name).next is not Next.RUN:
                return case
            return case.begun(replace(start, at=now))

        # Before it is written: on gevent it is asked meanwhile whether we have starts.
        self._running[start.id] = (suspect.digest, ref(request))
        suspect.start_id = start.id
        seen = self.ledger.change(suspect.digest, record)
        if any(each.id == start.id for each in seen.case.starts):
            return None
        self._running.pop(start.id, None)
        suspect.start_id = ""
        return seen.case, decide(seen.case, terms, seen.now, name=suspect.name)

    def end(self, request: Any, *, success: bool = False) -> None:
        """A start ended and its process lives, or it never began. Called before the broker is told."""
        suspect: Suspect | None = request.suspect
        if suspect is None:
            return
        start_id, suspect.start_id = suspect.start_id, ""
        if success:
            request.suspect = None
            self._running.pop(start_id, None)
            self.ledger.change(suspect.digest, lambda case, _: case.succeeded(start_id))
        elif start_id:
            self._end_start(suspect.digest, start_id)

    def stops(self) -> None:
        """The worker stops by plan: what it then leaves behind, without a connection to give it back, has not
        died of itself."""
        for start_id, (digest, request) in list(self._running.items()):
            found = request()
            if found is not None and found.suspect is not None:
                found.suspect.start_id = ""
            self._end_start(digest, start_id)

    def _end_start(self, digest: str, start_id: str) -> None:
        self._running.pop(start_id, None)
        self.ledger.change(digest, lambda case, _: case.ended(start_id))

    def death_of(self, request: Any, exc: BaseException) -> Death | None:
        """The death that a request ended with; None for any other end."""
        return death_from(exc, request, self.memory.of_dead)

    def died(self, request: Any, death: Death) -> tuple[Case, Decision]:
        """Write a death that this process has seen; what follows on it."""
        suspect: Suspect = request.suspect or Suspect(digest_of(request.message))
        start_id, suspect.start_id = suspect.start_id, ""
        request.suspect = suspect
        request.request_dict[SUSPECT_HEADER] = True
        if start_id:
            death = replace(death, id=start_id)
        seen = self.ledger.change(suspect.digest, lambda case, now: case.died(replace(death, at=now)))
        self._running.pop(start_id, None)
        self._tell_death(request.task, request.message, seen.case, death)
        return seen.case, decide(seen.case, self.terms_of(request.task), seen.now)

    def give_up(self, message: Any) -> None:
        """The work has its letter: copies of this publish end, and what else has its name is another."""
        name = publish_digest_of(message)
        if name or not is_severed(message):  # Else it comes back, and its case has to say the same.
            self.ledger.change(digest_of(message), lambda case, now: case.closed(name, now))

    def _tell_death(self, task: Any, message: Any, case: Case, death: Death) -> None:
        tell_death(self.app, task, message, case, death, limit=self.terms_of(task).limit)

    # Upkeep

    def upkeep(self) -> None:
        """Write what is owed; end the starts of requests that are gone without a word."""
        for start_id, (digest, request) in list(self._running.items()):
            found = request()
            if (found is None or found.acknowledged) and start_id in self._running:
                self._end_start(digest, start_id)
        self.ledger.write_owed()

    def sample(self, pool: Any) -> None:
        """Look at the memory of prefork's children."""
        processes = getattr(getattr(pool, "_pool", None), "_pool", None)
        pids = [getattr(each, "pid", None) for each in processes or ()]
        self.memory.sample([pid for pid in pids if isinstance(pid, int)])

    def _has_starts(self) -> bool:
        return bool(self._running)


_all: WeakKeyDictionary[Celery, PoisonWatch] = WeakKeyDictionary()


def poison_for(app: Celery) -> PoisonWatch:
    """The watch of an app's worker in this process."""
    found = _all.get(app)
    if found is None:
        found = _all[app] = PoisonWatch(app)
    return found
