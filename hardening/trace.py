"""Celery's tracer around a task, with an honest answer to the worker where Celery's own would be wrong.

Celery's tracer breaks when the result backend is dead, calls a task that it could not begin a success,
and fails one whose result it cannot store. How the body ended is known better: see `execution`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import billiard.einfo
from billiard.einfo import ExceptionInfo
from celery import states
from celery.app.trace import TraceInfo, trace_ok_t
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.serialization import get_pickleable_exception
from kombu.exceptions import EncodeError, OperationalError

from .capture import DELIVERY, LetterNotKept, keeper_for
from .chord_members import part_of
from .core.events import replay_succeeded, tell
from .core.identity import LETTER_HEADER, identity_of
from .core.reasons import Reason
from .current import running
from .execution import Execution, is_greenlet_exit
from .history import class_path
from .poison.death import EX_RECYCLE, ExitForMemory, OutOfMemory
from .reason import reason_for
from .retries.traffic import traffic_for
from .scheduled import tell_began, tell_succeeded

__all__ = ["CUT_OFF", "error_of", "guarded_trace"]

logger = logging.getLogger("hardening")

CUT_OFF: set[str] = set()
"""Ids of tasks whose greenlet was killed. Celery's gevent pool calls them successful and acknowledges."""


class UnreadableError(Exception):
    """Stands for an error whose text or traceback cannot be made: only its class path is left."""


def guarded_trace(task: Any, tracer: Callable[..., Any]) -> Callable[..., Any]:
    """Celery's tracer for a task, with an honest answer when it breaks."""
    keeper = keeper_for(task.app)
    traffic = traffic_for(task.app)
    part = part_of(task)

    def trace(uuid: str, args: Any, kwargs: Any, request: Any = None) -> Any:
        properties = request.get("properties") if request else None
        delivery = properties.pop(DELIVERY, None) if properties else None
        if delivery is None:  # Not from a hardened worker: a test that calls the trace itself.
            return tracer(uuid, args, kwargs, request)
        execution = Execution(task, uuid, delivery, keeper, traffic)
        execution.part = part(execution, request)
        token = running.set(execution)
        try:
            tell_began(execution)
            outcome = tracer(uuid, args, kwargs, request)
        except Reject as exc:
            if not _wants_back(exc):
                raise
            outcome = _answer(states.REJECTED, exc)
        except Exception as exc:
            if not isinstance(exc, MemoryError) or execution.is_over:
                return _after_broken_trace(execution, request, exc)
            outcome = _answer(states.IGNORED, execution.without_memory(exc))
        except BaseException as exc:
            if is_greenlet_exit(exc):
                CUT_OFF.add(uuid)
            raise
        finally:
            running.reset(token)
        if outcome.info is not None and _wants_back(outcome.info.retval):
            return _after_requeue(execution, args, kwargs, request, outcome.info.retval)
        return _outcome(execution, request, outcome)

    return trace


def _outcome(execution: Execution, request: Any, outcome: Any) -> Any:
    """What Celery's tracer answers, where it is the truth."""
    if execution.part is not None:
        execution.part.ended()
    info = outcome.info
    if info is None:
        if isinstance(outcome.retval, ExceptionInfo):
            return _after_no_start(execution, request, outcome)
        if execution.finished:
            _tell_success(execution, "returned")
            tell_succeeded(execution)
        return outcome
    _tell_if_ignored(execution)
    if isinstance(info.retval, MemoryError) and not execution.is_over:  # Of a hook before the body.
        outcome = _answer(states.IGNORED, execution.without_memory(info.retval))
        info = outcome.info
    if isinstance(info.retval, OutOfMemory) and execution.is_in_child:
        raise ExitForMemory(EX_RECYCLE, str(info.retval))
    if execution.kept or execution.retry_sent or not _is_final(info):
        return outcome
    return _after_late_failure(execution, request, outcome)


def _tell_if_ignored(execution: Execution) -> None:
    """A body that raised Ignore ended its task without a failure: no letter comes, and nobody else tells.

    But one that sent a retry, or handed its identity on to a replacement: that has the outcome.
    """
    lives_on = execution.retry_sent or execution.unsent is not None or execution.handed_on
    if isinstance(execution.ended_by, Ignore) and not lives_on:
        _tell_success(execution, "ignored")
        tell_succeeded(execution)


def _tell_success(execution: Execution, how: str) -> None:
    """Of what was sent again for a letter; nothing else pays."""
    headers = execution.delivery.headers
    if LETTER_HEADER not in (headers or ()):
        return
    identity = identity_of(headers, execution.task_id)
    if identity.replay_of is not None:
        tell(
            replay_succeeded,
            letter_id=identity.replay_of,
            task_id=execution.task_id,
            task_name=execution.task.name,
            delivery_key=identity.delivery_key,
            replay_number=identity.replay_number,
            how=how,
        )


def _is_final(info: Any) -> bool:
    return info.state in (states.REJECTED, states.FAILURE)


def _wants_back(exc: Any) -> bool:
    return isinstance(exc, Reject) and bool(getattr(exc, "requeue", False))


def _after_no_start(execution: Execution, request: Any, outcome: Any) -> Any:
    """Celery could not begin, as with keyword arguments that are no mapping, and calls it a success."""
    from celery.app.task import Context

    exc = error_of(outcome.retval)
    execution.request = Context(request)
    try:
        execution.keep(exc, Reason.INTERNAL_ERROR, close=True)
    except LetterNotKept as not_kept:
        return _answer(states.IGNORED, not_kept)
    _mark_failure(execution, exc)
    return _answer(states.FAILURE, exc)


def _after_requeue(execution: Execution, args: Any, kwargs: Any, request: Any, exc: Any) -> Any:
    """Asked for outside the body, by a hook or by Celery itself: its message comes later, not for ever."""
    from celery.app.task import Context

    execution.request = Context(request or {}, args=args, kwargs=kwargs, called_directly=False)
    stack = execution.task.request_stack  # The tracer took it off; a retry reads it there.
    stack.push(execution.request)
    try:
        instead = execution.put_back(exc)
    except LetterNotKept as not_kept:
        return _answer(states.IGNORED, not_kept)
    finally:
        stack.pop()
    if isinstance(instead, Retry):
        return _answer(states.RETRY, instead)
    if isinstance(instead, Ignore):
        return _answer(states.IGNORED, instead)
    _mark_failure(execution, instead)
    return _answer(states.FAILURE, instead)


def _mark_failure(execution: Execution, exc: BaseException) -> None:
    try:
        execution.task.backend.mark_as_failure(execution.task_id, exc, request=execution.request)
    # The letter is kept: whoever cannot be told is not worth a second run.
    except Exception:
        logger.exception(
            "the failure of task %s[%s] could not be stored", execution.task.name, execution.task_id
        )


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
        reason = Reason.INTERNAL_ERROR if execution.finished else reason_for(exc)
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
        _tell_if_ignored(execution)
        return _answer(states.IGNORED, ended_by)
    if isinstance(ended_by, Reject):
        return _answer(states.REJECTED, ended_by)
    if execution.kept and isinstance(ended_by, Exception):
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
