"""One execution of a task in the process that runs its body: how it ended, and the letter it leaves.

The argument. Celery reports a failure to the result backend before anything of ours could run, and
a dead backend makes it forget the failure altogether; the worker then acknowledges. So the letter
is kept earlier, at the moment when the error leaves the body, and the trace around it is told the
truth whatever the backend does:

    body raises -> letter kept -> Celery stores FAILURE, calls errbacks -> parent acknowledges

Dying before the letter is kept: the message is unacknowledged and comes back. Dying after it: it
comes back too, fails again, and is the same letter (idempotent). The letter cannot be kept
anywhere: LetterNotKept travels to the parent in place of the error, nothing is reported, and the
parent holds the message unacknowledged and tries again.
"""

from __future__ import annotations

import logging
import math
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from celery.app.task import Task
from celery.exceptions import (
    Ignore,
    MaxRetriesExceededError,
    Reject,
    Retry,
    SoftTimeLimitExceeded,
    WorkerShutdown,
    WorkerTerminate,
)

from .capture import Keeper
from .chord_members import Part
from .classification.verdict import Verdict
from .core.errors import Transient
from .core.letter import Attempt
from .core.reasons import Reason
from .history import attempt_from, attempt_number, class_path, encode_history
from .poison.death import OutOfMemory
from .reason import reason_for
from .retries.aftermath import DependencyDown, Next, Step, follow, follow_admission, judge, still_waiting
from .retries.sending import RetryUnpublished, not_sent, send
from .retries.traffic import Traffic
from .returning import RetryNotSent

__all__ = ["BodyInterrupted", "Execution", "is_greenlet_exit"]

logger = logging.getLogger("hardening")

_MOST_OF_A_TEXT = 200
_MOST_OF_A_RULE = 120  # Characters: it travels in a header, and its code comes from another side.


class PutBack(Transient):
    """The task rejected its message with `requeue`. Plain Celery gives it back at once, for ever."""


class BodyInterrupted(Exception):
    """Stands for an error of a body that is no Exception, which Celery's pools cannot bear."""


class Execution:
    """What is known of a running task, and how its body ended."""

    __slots__ = (
        "concerned",
        "decided",
        "delivery",
        "ended_by",
        "exhausted",
        "finished",
        "given_up",
        "handed_on",
        "judged",
        "keeper",
        "kept",
        "part",
        "probes",
        "random",
        "rehearsed",
        "request",
        "retry_sent",
        "started_at",
        "task",
        "task_id",
        "traffic",
        "unsent",
    )

    def __init__(self, task: Any, task_id: str, delivery: Any, keeper: Keeper, traffic: Traffic) -> None:
        self.task = task
        self.task_id = task_id
        self.delivery = delivery
        self.keeper = keeper
        self.request: Any = None
        self.started_at = time.time()
        self.finished = False
        self.exhausted = False
        self.retry_sent = False
        self.handed_on = False
        self.kept = False
        self.part: Part | None = None
        self.ended_by: BaseException | None = None
        self.given_up: tuple[Step, BaseException | None] | None = None
        self.unsent: RetryNotSent | RetryUnpublished | None = None
        self.judged: tuple[BaseException, Verdict] | None = None
        self.decided: tuple[Step, str] | None = None
        self.traffic = traffic
        self.concerned = False
        self.probes: list[str] = []
        self.random: Callable[[], float] = random.random
        self.rehearsed = False

    def watches(self, request: Any) -> bool:
        """Whether this is more than Celery's own eager call."""
        return self.rehearsed or not request.is_eager

    def enter(self, request: Any) -> None:
        """The body is about to run."""
        self.request = request
        retries = request.retries
        if type(retries) is not int or retries < 0:
            request.retries = attempt_number(retries) - 1  # A count of another producer must count up.

    @property
    def longest_hop(self) -> float:
        """The most seconds that a message of ours may wait in a worker."""
        return math.inf if self.rehearsed else self.traffic.longest_hop

    @property
    def is_over(self) -> bool:
        """Whether it is settled how the body ended: only hooks run now."""
        return self.ended_by is not None and (self.kept or self.retry_sent)

    def note_sent(self) -> None:
        """The next message is on the broker."""
        self.retry_sent = True
        self.unsent = None

    def admit(self) -> None:
        """Raises Retry in place of a body that may not run yet: its wait is not over, or what it depends
        on is down. The message was put back."""
        wait = still_waiting(self.request, self.started_at)
        if wait is not None:
            raise send(self, None, wait, None, {})
        if not self.task.acks_late:
            return  # Acknowledged already: nothing would hold the work while it is sent again.
        try:
            held = self.traffic.admit(self)
        # Which way it fails: admit.
        except Exception as exc:
            if isinstance(exc, SoftTimeLimitExceeded):
                raise
            logger.exception("no outage is known to task %s[%s]: it runs", self.task.name, self.task_id)
            return
        if held is None:
            return
        down = DependencyDown(f"{held.dependency} is down; put back for {held.seconds:.0f} s")
        step = follow_admission(self, held)
        if step.next is Next.END:
            self.given_up = (step, down)
            raise down
        raise send(self, None, step, down, {})

    def finish(self) -> None:
        """The body returned. Raises what it swallowed, where that was a retry that was not sent."""
        if self.unsent is not None:
            raise self.unsent
        self.finished = True
        if self.part is not None:
            self.part.succeeded()
        try:
            self.traffic.succeeded(self)
        # The work is done, whoever cannot be told.
        except Exception:
            logger.exception("the success of task %s[%s] ends no outage", self.task.name, self.task_id)

    def verdict_on(self, exc: BaseException) -> Verdict:
        """The verdict on an error of the body, judged once."""
        if self.judged is None or self.judged[0] is not exc:
            self.judged = (exc, judge(self, exc))
        return self.judged[1]

    def ended_with(self, exc: BaseException) -> Exception | None:
        """The body raised. Keeps the letter if that is its end; returns what to raise in its place, or None.

        Raises LetterNotKept when the letter can be kept nowhere.
        """
        self.ended_by = exc
        if isinstance(exc, Retry):
            return None if self.retry_sent else self._unsent_retry(exc)
        if self.probes and isinstance(exc, (Ignore, Reject)):
            self.traffic.said_nothing(self)
        if isinstance(exc, Reject) and getattr(exc, "requeue", False):
            return self.put_back(exc)
        if isinstance(exc, MemoryError) and not self.rehearsed:
            return self.without_memory(exc)
        if isinstance(exc, (Ignore, MemoryError)) or self._ends_more_than_the_task(exc):
            return None
        instead = self.fail(exc)
        if instead is not None or isinstance(exc, Exception):
            return instead
        return BodyInterrupted(f"{type(exc).__qualname__}: {exc}")

    def without_memory(self, exc: BaseException) -> Exception:
        """What to raise in place of a MemoryError, for which Celery would end the whole worker."""
        if self.retry_sent:
            return Ignore("without memory, after a retry was sent")  # The retry lives on.
        name, text = class_path(type(exc)), ""
        try:
            text = self.cleaner()(str(exc))[:_MOST_OF_A_TEXT]
        # Whatever cannot be done without memory: the name says it.
        except Exception:
            logger.warning("the text of a %s cannot be read", name)
        self.ended_by = OutOfMemory(f"{name}: {text}" if text else name)
        return self.ended_by

    @property
    def is_in_child(self) -> bool:
        """Whether another process received the message."""
        return bool(self.delivery.pid != os.getpid())

    def put_back(self, exc: BaseException) -> Exception:
        """The task wants its message again: as a retry, later and each time later, and not for ever.

        Returns what to raise in its place. Raises LetterNotKept.
        """
        again = PutBack(f"put back by the task: {getattr(exc, 'reason', None) or exc!r}")
        again.__cause__ = exc
        return self.fail(again) or again

    def _unsent_retry(self, exc: Retry) -> Exception:
        """Raised by hand: Celery would acknowledge a message in whose place nothing was sent."""
        behind = getattr(exc, "exc", None)
        if getattr(exc, "is_eager", False) and isinstance(behind, Exception):
            return self.fail(behind) or behind  # Of another task, that the body applied in place.
        unsent = RetryUnpublished(exc, requeue=False)
        unsent.__cause__ = getattr(exc, "exc", None) or exc
        self.fail(unsent)
        return unsent

    def fail(self, exc: BaseException) -> Exception | None:
        """The body raised: send its retry, or keep the letter now. Returns what to raise in its place.

        Raises LetterNotKept when the letter can be kept nowhere.
        """
        self.ended_by = exc
        if self.retry_sent:
            logger.warning(
                "task %s[%s] sent a retry and failed all the same: %s; no letter, the retry lives on",
                self.task.name,
                self.task_id,
                class_path(type(exc)),
                extra={"task_id": self.task_id, "task_name": self.task.name},
            )
            return None
        if isinstance(exc, Reject):
            self.keep(exc, reason_for(exc))
            return None
        if self.exhausted:
            self.keep(exc, Reason.RETRIES_EXHAUSTED)
            return None
        step = self._given_up_on(exc) or self._follow(exc)
        if step.next is Next.END:
            self.keep(exc, step.reason or reason_for(exc))
            return None
        return self._send_again(step, exc)

    def _given_up_on(self, exc: BaseException) -> Step | None:
        """The decision that a retry was refused with, where this error is what came of it."""
        if self.given_up is None:
            return None
        step, refused = self.given_up
        behind: BaseException | None = exc
        for _ in range(20):
            if behind is None:
                break
            if behind is refused or isinstance(behind, MaxRetriesExceededError):
                return step
            behind = behind.__cause__ or behind.__context__
        return None

    def _follow(self, exc: BaseException) -> Step:
        for last_try in (False, True):
            try:
                return follow(self, exc, None)
            # Whatever is odd about a message or an error, it must not end without a letter.
            except Exception as error:
                if isinstance(error, SoftTimeLimitExceeded) and not last_try:
                    continue  # It comes once, and says nothing of the error that is being judged.
                logger.exception(
                    "what follows on task %s[%s] is unknown: no retry", self.task.name, self.task_id
                )
                break
        return Step(next=Next.END, verdict=self.verdict_on(exc), reason=reason_for(exc))

    def _send_again(self, step: Step, exc: BaseException) -> Exception:
        try:
            sends_with = getattr(type(self.task).retry, "sends_with", Task.retry)
            self.ended_by = send(self, sends_with, step, exc, {})
        except (Retry, RetryNotSent) as told:  # A project's own retry may raise though asked to return.
            self.ended_by = told
        except SoftTimeLimitExceeded as error:
            self.ended_by = not_sent(self, error, step.delay)
            if isinstance(self.ended_by, RetryUnpublished):
                self.keep(self.ended_by, Reason.RETRY_UNPUBLISHED)
        except Exception as error:  # Unfit to be sent, as a message with a retry count that is no number.
            unsent = error if isinstance(error, RetryUnpublished) else RetryUnpublished(error, requeue=False)
            unsent.__cause__ = exc
            self.ended_by = unsent
            self.keep(unsent, Reason.RETRY_UNPUBLISHED)
        return self.ended_by

    def _has_hard_limit(self) -> bool:
        asked = (getattr(self.request, "timelimit", None) or (None,))[0]
        return bool(asked or self.task.time_limit or self.task.app.conf.task_time_limit)

    def keep(self, exc: BaseException, reason: Reason, *, close: bool = False) -> None:
        """Keep a letter for this execution. Raises LetterNotKept."""
        self.keeper.keep_execution(self, exc, reason, close=close)
        self.kept = True

    def _ends_more_than_the_task(self, exc: BaseException) -> bool:
        """Whether an error that is no Exception is meant for the worker, and not a way for a body to fail."""
        if isinstance(exc, (KeyboardInterrupt, WorkerShutdown, WorkerTerminate)) or is_greenlet_exit(exc):
            return True
        if _is_green_timeout(exc) and self._has_hard_limit():
            return True  # The pool's own, on its way to the parent's on_timeout.
        # In a pool's child it ends the child, which the parent sees; elsewhere nothing would see it.
        return isinstance(exc, SystemExit) and self.is_in_child

    def history_with(self, exc: BaseException | None, verdict: Verdict | None = None) -> str:
        """The attempts so far and this one, for the header of a retry. Empty without an error."""
        error = exc if isinstance(exc, BaseException) else sys.exc_info()[1]
        if error is None:
            return ""
        earlier: list[Attempt] = self.keeper.earlier_attempts(self.request)
        return encode_history([*earlier, self.attempt(error, verdict)])

    def attempt(self, error: BaseException, verdict: Verdict | None = None) -> Attempt:
        """This execution as a failed attempt."""
        said = verdict or self.verdict_on(error)
        return attempt_from(
            error,
            number=attempt_number(getattr(self.request, "retries", 0)),
            worker=str(getattr(self.request, "hostname", "") or ""),
            started_at=self.started_at,
            clean=self.cleaner(),
            verdict=said.kind.value,
            rule=f"{said.rule} {said.code}".rstrip()[:_MOST_OF_A_RULE],
        )

    def cleaner(self) -> Callable[[str], str]:
        """A function that takes this task's secrets out of a text."""
        return self.keeper.cleaner(self.task, self.request or self.task.request)


def is_greenlet_exit(exc: BaseException) -> bool:
    """Whether a greenlet is being killed."""
    greenlet = sys.modules.get("greenlet")
    return greenlet is not None and isinstance(exc, greenlet.GreenletExit)


def _is_green_timeout(exc: BaseException) -> bool:
    pools = (sys.modules.get("gevent"), sys.modules.get("eventlet"))
    return any(pool is not None and isinstance(exc, pool.Timeout) for pool in pools)
