"""Reaches into a task class: its call, its retry, its trace and its request."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from celery.app.task import Task
from celery.exceptions import Reject, Retry

from .core.errors import Permanent
from .core.identity import ATTEMPTS_HEADER

__all__ = ["RetryUnpublished", "is_reached", "reach"]

_MARK = "_hardening_reached"
_ENTERED = "_hardening_entered"
_STOCK_REQUEST = ("celery.worker.request:Request", "celery.worker.request.Request")
_REQUEST = "hardening.request:HardenedRequest"


class RetryUnpublished(Reject):
    """The task asked for a retry that was not sent: the broker refused it, or Retry was raised by hand."""


def is_reached(task: type[Any]) -> bool:
    """Whether `reach` was applied to this very class."""
    return bool(task.__dict__.get(_MARK))


def reach(task: type[Any]) -> None:
    """Install our behaviour on a task class. Idempotent; keeps what the class does of its own.

    The outermost first: the trace sees errors of the result backend around the task; the call sees
    an error of the body before Celery handles it; the retry carries the attempt history and obeys
    Permanent; the request guards the worker's parent process.
    """
    if is_reached(task):
        return
    setattr(task, _MARK, True)
    if not _is_ours(task.__call__):
        task.__call__ = _guarded_call(task)
    if not _is_ours(task.retry):
        task.retry = _guarded_retry(task.retry)
    if not isinstance(task.__dict__.get("__trace__"), _TraceSlot):
        task.__trace__ = _TraceSlot()
    task.Request = _guarded_request(task.Request)


def _is_ours(function: Any) -> bool:
    return bool(getattr(function, _MARK, False))


def _has_own_call(task: type[Any]) -> bool:
    return any("__call__" in owner.__dict__ for owner in task.__mro__ if owner not in (Task, object))


def _guarded_call(task: type[Any]) -> Any:
    own = task.__call__ if _has_own_call(task) else None

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        from .execution import current

        request = self.request_stack.top
        if request is None or request.called_directly or _ENTERED in request.__dict__:
            # A plain function call, also one from inside the running task: not a delivery.
            return own(self, *args, **kwargs) if own else Task.__call__(self, *args, **kwargs)
        request.__dict__[_ENTERED] = True
        if own is None:
            request._protected = 1  # As Celery's call in a worker does: a direct call inside is one again.
        execution = current()
        if execution is None or request.is_eager or execution.task_id != request.id:
            return own(self, *args, **kwargs) if own else self.run(*args, **kwargs)
        execution.enter(request)
        try:
            result = own(self, *args, **kwargs) if own else self.run(*args, **kwargs)
        except BaseException as exc:
            instead = execution.ended_with(exc)
            if instead is not None:
                raise instead from exc
            raise
        execution.finish()
        return result

    setattr(call, _MARK, True)
    return call


def _guarded_retry(own: Any) -> Any:
    takes_headers = _takes_headers(own)

    @functools.wraps(own)
    def retry(self: Any, *given: Any, **options: Any) -> Any:
        # Passed on as given: a project's own retry may have another signature than Celery's.
        from .execution import current

        execution = current()
        exc = options.get("exc", given[2] if len(given) > 2 else None)
        if isinstance(exc, Permanent):
            # autoretry_for=(Exception,) and a broad `except` around the body both end here.
            raise exc
        request = self.request_stack.top
        if execution is None or request is None or request.is_eager or request.id != execution.task_id:
            return own(self, *given, **options)
        execution.request = request  # It may not have been entered: a retry in before_start.
        history = execution.history_with(exc) if takes_headers else ""
        if history:
            options["headers"] = {
                **_own_headers(execution.request),
                **(options.get("headers") or {}),
                ATTEMPTS_HEADER: history,
            }
        try:
            answer = own(self, *given, **options)
            execution.retry_sent = True
            return answer
        except Retry:
            execution.retry_sent = True
            raise
        except Reject as rejected:
            if rejected is exc:
                raise  # Retries are used up, and the error to raise then is itself a Reject.
            raise RetryUnpublished(getattr(rejected, "reason", None), requeue=False) from exc
        except Exception:
            execution.exhausted = True
            raise

    setattr(retry, _MARK, True)
    return retry


def _takes_headers(own: Any) -> bool:
    parameters = inspect.signature(own).parameters
    return "headers" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _own_headers(request: Any) -> dict[str, Any]:
    """The message's custom headers, without the broker's own notes about earlier deaths."""
    return {
        name: value
        for name, value in (request.headers or {}).items()
        if not name.startswith(("x-death", "x-first-death", "x-last-death"))
    }


class _TraceSlot:
    """Takes the place of Task.__trace__: wraps the tracer that Celery puts there."""

    _STORED = "_hardening_trace"

    def __get__(self, task: Any, owner: Any = None) -> Any:
        return None if task is None else task.__dict__.get(self._STORED)

    def __set__(self, task: Any, tracer: Any) -> None:
        from .execution import guarded_trace

        task.__dict__[self._STORED] = None if tracer is None else guarded_trace(task, tracer)


def _guarded_request(request: Any) -> Any:
    if request in _STOCK_REQUEST:
        return _REQUEST  # As a name: a web process need not import the worker's code.
    if request == _REQUEST:
        return request
    from celery.utils.imports import symbol_by_name

    from .request import HardenedRequest

    found = symbol_by_name(request)
    if issubclass(found, HardenedRequest):
        return found
    return type(f"Hardened{found.__name__}", (HardenedRequest, found), {})
