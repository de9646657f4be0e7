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
import os
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import billiard.einfo
from billiard.einfo import ExceptionInfo
from celery import states
from celery.app.trace import TraceInfo, trace_ok_t
from celery.exceptions import Ignore, Reject, Retry, WorkerShutdown, WorkerTerminate
from celery.utils.serialization import get_pickleable_exception
from kombu.exceptions import EncodeError, OperationalError

from .capture import DELIVERY, Keeper, LetterNotKept, keeper_for
from .core.letter import Attempt
from .core.reasons import Reason
from .history import attempt_from, attempt_number, class_path, encode_history
from .reason import reason_for
from .task import RetryUnpublished

__all__ = ["CUT_OFF", "BodyInterrupted", "Execution", "current", "error_of", "guarded_trace"]

logger = logging.getLogger("hardening")

_current: ContextVar[Execution | None] = ContextVar("hardening_execution", default=None)


def current() -> Execution | None:
    """The execution that this thread or greenlet is in."""
    return _current.get()


CUT_OFF: set[str] = set()
"""Ids of tasks whose greenlet was killed. Celery's gevent pool calls them successful and acknowledges."""


class BodyInterrupted(Exception):
    """Stands for an error of a body that is no Exception, which Celery's pools cannot bear."""


class UnreadableError(Exception):
    """Stands for an error whose text or traceback cannot be made: only its class path is left."""


class Execution:
    """What is known of a running task, and how its body ended."""

    __slots__ = (
        "delivery",
        "ended_by",
        "exhausted",
        "finished",
        "keeper",
        "kept",
        "request",
        "retry_sent",
        "started_at",
        "task",
        "task_id",
    )

    def __init__(self, task: Any, task_id: str, delivery: Any, keeper: Keeper) -> None:
        self.task = task
        self.task_id = task_id
        self.delivery = delivery
        self.keeper = keeper
        self.request: Any = None
        self.started_at = time.time()
        self.finished = False
        self.exhausted = False
        self.retry_sent = False
        self.kept = False
        self.ended_by: BaseException | None = None

    def enter(self, request: Any) -> None:
        """The body is about to run."""
        self.request = request

    def finish(self) -> None:
        """The body returned."""
        self.finished = True

    def ended_with(self, exc: BaseException) -> Exception | None:
        """The body raised. Keeps the letter if that is its end; returns what to raise in its place, or None.

        Raises LetterNotKept when the letter can be kept nowhere.
        """
        self.ended_by = exc
        if isinstance(exc, Retry):
            return None if self.retry_sent else self._unsent_retry(exc)
        if isinstance(exc, (Ignore, MemoryError)) or self._ends_more_than_the_task(exc):
            return None
        self.fail(exc)
        return None if isinstance(exc, Exception) else BodyInterrupted(f"{type(exc).__qualname__}: {exc}")

    def _unsent_retry(self, exc: Retry) -> Exception:
        """Raised by hand: Celery would acknowledge a message in whose place nothing was sent."""
        unsent = RetryUnpublished(exc, requeue=False)
        unsent.__cause__ = getattr(exc, "exc", None) or exc
        self.fail(unsent)
        return unsent

    def fail(self, exc: BaseException) -> None:
        """The body raised: keep the letter now. Raises LetterNotKept when that is impossible."""
        self.ended_by = exc
        if isinstance(exc, Reject) and getattr(exc, "requeue", False):
            return
        if self.retry_sent:
            logger.warning(
                "task %s[%s] sent a retry and failed all the same: %s; no letter, the retry lives on",
                self.task.name,
                self.task_id,
                class_path(type(exc)),
                extra={"task_id": self.task_id, "task_name": self.task.name},
            )
            return
        self.keep(exc, reason_for(exc, exhausted=self.exhausted))

    def _has_hard_limit(self) -> bool:
        asked = (getattr(self.request, "timelimit", None) or (None,))[0]
        return bool(asked or self.task.time_limit or self.task.app.conf.task_time_limit)

    def keep(self, exc: BaseException, reason: Reason, *, close: bool = False) -> None:
        """Keep a letter for this execution. Raises LetterNotKept."""
        self.keeper.keep_execution(self, exc, reason, close=close)
        self.kept = True

    def _ends_more_than_the_task(self, exc: BaseException) -> bool:
        """Whether an error that is no Exception is meant for the worker, and not a way for a body to fail."""
        if isinstance(exc, (KeyboardInterrupt, WorkerShutdown, WorkerTerminate)) or _is_greenlet_exit(exc):
            return True
        if _is_green_timeout(exc) and self._has_hard_limit():
            return True  # The pool's own, on its way to the parent's on_timeout.
        # In a pool's child it ends the child, which the parent sees; elsewhere nothing would see it.
        return isinstance(exc, SystemExit) and self.delivery.pid != os.getpid()

    def history_with(self, exc: BaseException | None) -> str:
        """The attempts so far and this one, for the header of a retry. Empty without an error."""
        error = exc if isinstance(exc, BaseException) else sys.exc_info()[1]
        if error is None:
            return ""
        earlier: list[Attempt] = self.keeper.earlier_attempts(self.request)
        return encode_history([*earlier, self.attempt(error)])

    def attempt(self, error: BaseException) -> Attempt:
        """This execution as a failed attempt."""
        return attempt_from(
            error,
            number=attempt_number(getattr(self.request, "retries", 0)),
            worker=str(getattr(self.request, "hostname", "") or ""),
            started_at=self.started_at,
            clean=self.cleaner(),
        )

    def cleaner(self) -> Callable[[str], str]:
        """A function that takes this task's secrets out of a text."""
        return self.keeper.cleaner(self.task, self.request or self.task.request)


def guarded_trace(task: Any, tracer: Callable[..., Any]) -> Callable[..., Any]:
    """Celery's tracer for a task, with an honest answer when it breaks."""
    keeper = keeper_for(task.app)

    def trace(uuid: str, args: Any, kwargs: Any, request: Any = None) -> Any:
        properties = request.get("properties") if request else None
        delivery = properties.pop(DELIVERY, None) if properties else None
        if delivery is None:  # Not from a hardened worker: a test that calls the trace itself.
            return tracer(uuid, args, kwargs, request)
        execution = Execution(task, uuid, delivery, keeper)
        token = _current.set(execution)
        try:
            outcome = tracer(uuid, args, kwargs, request)
        except (MemoryError, Reject):
            raise
        except Exception as exc:
            return _after_broken_trace(execution, request, exc)
        except BaseException as exc:
            if _is_greenlet_exit(exc):
                CUT_OFF.add(uuid)
            raise
        finally:
            _current.reset(token)
        info = outcome.info
        if info is None and isinstance(outcome.retval, ExceptionInfo):
            return _after_no_start(execution, request, outcome)
        if info is None or execution.kept or not _is_final(info):
            return outcome
        if isinstance(info.retval, MemoryError) or execution.retry_sent:
            # The worker ends and the message comes back; or a retry was sent. It lives on.
            return outcome
        return _after_late_failure(execution, request, outcome)

    return trace


def _is_final(info: Any) -> bool:
    rejected = info.state == states.REJECTED and not getattr(info.retval, "requeue", False)
    return bool(rejected or info.state == states.FAILURE)


def _is_greenlet_exit(exc: BaseException) -> bool:
    greenlet = sys.modules.get("greenlet")
    return greenlet is not None and isinstance(exc, greenlet.GreenletExit)


def _is_green_timeout(exc: BaseException) -> bool:
    pools = (sys.modules.get("gevent"), sys.modules.get("eventlet"))
    return any(pool is not None and isinstance(exc, pool.Timeout) for pool in pools)


def _after_no_start(execution: Execution, request: Any, outcome: Any) -> Any:
    """Celery could not begin, as with keyword arguments that are no mapping, and calls it a success."""
    from celery.app.task import Context

    exc = error_of(outcome.retval)
    execution.request = Context(request)
    try:
        execution.keep(exc, Reason.INTERNAL_ERROR, close=True)
    except LetterNotKept as not_kept:
        return _answer(states.IGNORED, not_kept)
    try:
        execution.task.backend.mark_as_failure(execution.task_id, exc, request=execution.request)
    # The letter is kept: whoever cannot be told is not worth a second run.
    except Exception:
        logger.exception(
            "the failure of task %s[%s] could not be stored", execution.task.name, execution.task_id
        )
    return _answer(states.FAILURE, exc)


def _after_late_failure(execution: Execution, request: Any, outcome: Any) -> Any:
    """Celery failed the task outside its body: before it began, or when it stored the result."""
    from celery.app.task import Context

    exc = outcome.info.retval
    if execution.request is None:
        execution.request = Context(request)
    if isinstance(exc, EncodeError) and execution.finished:
        reason = Reason.RESULT_NOT_SERIALISABLE
    elif execution.finished and isinstance(exc, OperationalError):
        reason = Reason.CALLBACK_UNPUBLISHED
    else:
        reason = Reason.INTERNAL_ERROR if execution.finished else reason_for(exc, exhausted=False)
    try:
        execution.keep(exc, reason, close=True)
    except LetterNotKept as not_kept:
        return _answer(states.IGNORED, not_kept)
    return outcome


def _after_broken_trace(execution: Execution, request: Any, exc: Exception) -> Any:
    """The tracer itself raised: as a rule the result backend is down. Say how the body really ended."""
    from celery.app.task import Context

    logger.error(
        "the outcome of task %s[%s] could not be stored in the result backend: %r",
        execution.task.name,
        execution.task_id,
        exc,
        extra={"task_id": execution.task_id, "task_name": execution.task.name},
    )
    ended_by = execution.ended_by
    if isinstance(ended_by, Retry):
        return _answer(states.RETRY, ended_by)
    if execution.retry_sent and isinstance(ended_by, Exception):
        return _answer(states.FAILURE, ended_by)
    if isinstance(ended_by, Ignore):
        return _answer(states.IGNORED, ended_by)
    if isinstance(ended_by, Reject):
        return _answer(states.REJECTED, ended_by)
    if isinstance(ended_by, MemoryError) or (execution.kept and isinstance(ended_by, Exception)):
        return _answer(states.FAILURE, ended_by)
    if execution.request is None:
        execution.request = Context(request)
    try:
        execution.keep(exc, Reason.RESULT_NOT_STORED, close=True)
    except LetterNotKept as not_kept:
        return _answer(states.IGNORED, not_kept)
    return _answer(states.FAILURE, exc)


def _answer(state: str, exc: BaseException) -> Any:
    told = get_pickleable_exception(exc) if isinstance(exc, Exception) else exc
    try:
        return _raised(state, told)
    except Exception:
        logger.warning("%s cannot be formatted; a stand-in is reported", class_path(type(exc)))
    # Celery and the pool's process would break on it as well, and the message would come back for ever.
    return _raised(state, UnreadableError(class_path(type(exc))))


def _raised(state: str, exc: BaseException) -> Any:
    try:
        raise exc
    except BaseException as raised:
        if isinstance(raised, UnreadableError):
            raised.__suppress_context__ = True
        return trace_ok_t(ExceptionInfo(), TraceInfo(state, raised), 0.0, None)


def error_of(exc_info: Any) -> BaseException:
    """The error in what a pool reports."""
    exc = exc_info.exception
    with_traceback: Any = billiard.einfo.ExceptionWithTraceback  # type: ignore[attr-defined]
    if isinstance(exc, with_traceback):
        exc = exc.exc
    return exc if isinstance(exc, BaseException) else Exception(repr(exc))
