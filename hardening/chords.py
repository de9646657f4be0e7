"""Members of a chord on Redis are acknowledged once their chord goes on without them.

The argument. The last member of a chord publishes its body. From Celery 5.7 on it first stores its result,
then counts its part and takes, in the same step, a claim that expires (5 s at least, more as it publishes),
then publishes the body, then deletes the chord's keys. What if its process dies between these lines:

- Before its part is counted: the result is stored, so Celery calls the member a success and acknowledges it,
  or, where it was asked to, does not run it again. Nobody counts the part, the chord never ends.
- With the claim: the member comes back, runs again within the claim's time, is counted already and finds the
  claim taken. It believes that another publishes, is acknowledged, and nobody does.
- After the body was published, before the keys are deleted: the body is published again, under the same id.

Who holds what. The member's message is unacknowledged until the chord goes on without it: its keys are gone,
or parts of others are missing, of which the last one publishes. Only the message whose process died can have
left a chord behind, so only those are asked about: one that may have been delivered before (it has a twin,
see `twins.work`), or whose process was lost under it. One question to Redis, when it is about to be
acknowledged; most go on at once. The others are held here, and each turn of the worker does what is missing:
a part that is not counted although its success is stored is counted, a body whose claim has run out is
published, both by Celery's own `on_chord_part_return`, which counts a member once, however often it is
called. This is done by the worker's parent, in the thread that tells (see `telling`), as Celery does it for
failures that only the parent sees: no child and no time limit waits.

A failure that the parent tells is a part as well: it is told again until its chord goes on, as long as this
worker lives.

- The worker dies while it holds one: the message was never acknowledged, comes back, and is asked about.
- It dies in the midst of publishing, with a claim of its own: the same.
- Redis does not answer: held on, for LONGEST_SECONDS at most. Which way it fails: acknowledged, with an error
  in the log that names the chord.

Celery 5.6 knows no claim and asks no result before it gives a message back: whoever comes again counts and
publishes. No member is held there, nor for other result backends; a failure that the parent tells takes the
place of what the member counted before. Two holes of its own stay: a member that died counted and returns
something else the next time counts twice, and the chord never ends; and with
`worker_deduplicate_successful_tasks` one that died before it was counted is not run again, and never counts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import celery._state
from celery import Celery, states
from celery.app.task import Context

from .history import class_path
from .standing import Standing, has_claims, standing_of
from .telling.teller import teller_for

__all__ = ["Chords", "Standing", "chords_for", "standing_of"]

logger = logging.getLogger("hardening")

_state: Any = celery._state

PATIENCE_SECONDS = 30.0
"""How long a chord may be without anybody's claim and yet not go on."""

LONGEST_SECONDS = 600.0
"""How long a message is held at most."""


@dataclass(slots=True, eq=False)
class _Held:
    request: Any
    end: Callable[[], Any]
    since: float
    until: float


class Chords:
    """The members that one worker holds. Used from its main loop, or from its greenlets."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        ask: Callable[[Callable[[], Standing]], Standing] = lambda question: question(),
    ) -> None:
        """`ask` has a question answered, in time or not at all: then it raises."""
        self._clock = clock
        self._ask = ask
        self._held: list[_Held] = []
        self._busy = False

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, request: Any, end: Callable[[], Any]) -> bool:
        """Whether a request must not end yet. If so `end` is called later, once, with `chord_settled` set."""
        if any(held.request is request for held in self._held):
            return True
        if not _is_member(request):
            return False
        try:
            if self._ask(partial(standing_of, request)) is Standing.SETTLED:
                return False
        # Redis may refuse in any way that it has: asked again at the next turn.
        except Exception as exc:
            _say(logging.WARNING, request, f"is not known: {class_path(type(exc))}")
        now = self._clock()
        self._held.append(_Held(request, end, now, now + PATIENCE_SECONDS))
        return True

    def settle(self) -> None:
        """Do what is missing. A backend that does not answer ends the turn."""
        if self._busy:  # On gevent a reconnect starts a new timer while the old one waits for Redis.
            return
        self._busy = True
        try:
            for held in list(self._held):
                if not self._settle(held):
                    return
        finally:
            self._busy = False

    def _settle(self, held: _Held) -> bool:
        request, now = held.request, self._clock()
        try:
            standing = self._ask(partial(_moved_on, request))
        except Exception as exc:
            if now - held.since >= LONGEST_SECONDS:
                self._give_up(held, f"does not answer: {class_path(type(exc))}")
            return False
        if standing is Standing.SETTLED:
            self._release(held)
            return True
        if standing is Standing.CLAIMED:
            held.until = now + PATIENCE_SECONDS
        if now >= min(held.until, held.since + LONGEST_SECONDS):
            self._give_up(held, standing.value)
        return True

    def _give_up(self, held: _Held, why: str) -> None:
        _say(logging.ERROR, held.request, f"may never end, and is waited for no longer ({why})")
        self._release(held)

    def _release(self, held: _Held) -> None:
        self._held.remove(held)
        held.request.chord_settled = True
        held.end()


def _moved_on(request: Any) -> Standing:
    """How its chord stands, after what could be done about it."""
    standing = standing_of(request)
    backend, result = request.task.backend, None
    if standing is Standing.UNCOUNTED:
        meta = backend.get_task_meta(request.id, cache=False)
        if meta["status"] != states.SUCCESS:
            return Standing.SETTLED  # It ended in another way, as with a retry, whose part counts.
        result = meta["result"]
    elif standing is not Standing.OPEN:
        return standing
    _say(logging.WARNING, request, "was left behind by a process that died; it is taken on")
    with _as_current(request):
        # Where the part was counted before, its result is not looked at.
        backend.on_chord_part_return(request._context, states.SUCCESS, result)
    return standing_of(request)


def _is_member(request: Any) -> bool:
    """Whether it is a member of a chord whose body can be left behind."""
    if not (request.group and request.task.acks_late and has_claims(request.task.backend)):
        return False
    return bool(request.chord)


@contextmanager
def _as_current(request: Any) -> Iterator[None]:
    """As in the member's own process: the body that is published is a child of it."""
    _state.push_current_task(request.task)
    request.task.request_stack.push(Context(vars(request._context), called_directly=False))
    try:
        yield
    finally:
        request.task.request_stack.pop()
        _state.pop_current_task()


def _say(level: int, request: Any, what: str) -> None:
    logger.log(
        level,
        "the chord %s of task %s[%s] %s",
        request.group,
        request.name,
        request.id,
        what,
        extra={"task_id": request.id, "task_name": request.name, "chord": request.group},
    )


_all: WeakKeyDictionary[Celery, Chords] = WeakKeyDictionary()


def chords_for(app: Celery) -> Chords:
    """Those of an app's worker in this process."""
    found = _all.get(app)
    if found is None:
        found = _all[app] = Chords(ask=teller_for(app).ask)
    return found
