"""Reaches into a task class: its call, its retry, its hooks, its trace and its request."""

from __future__ import annotations

from typing import Any

from celery.app.task import Task

from .current import current
from .hooks import guard_hooks
from .replaced import handing_on
from .retries.asking import guarded_retry

__all__ = ["is_reached", "reach"]

_MARK = "_hardening_reached"
_ENTERED = "_hardening_entered"
_STOCK_REQUEST = ("celery.worker.request:Request", "celery.worker.request.Request")
_REQUEST = "hardening.request:HardenedRequest"
RECEIVE = "hardening.reception:receive"
OWN_STRATEGY = "_hardening_strategy"


def is_reached(task: type[Any]) -> bool:
    """Whether `reach` was applied to this very class."""
    return bool(task.__dict__.get(_MARK))


def reach(task: type[Any]) -> None:
    """Install our behaviour on a task class. Idempotent; keeps what the class does of its own.

    The outermost first: the trace sees errors of the result backend around the task; the call sees
    an error of the body before Celery handles it; the retry follows the project's one policy; a hook
    that breaks changes nothing; the request guards the worker's parent process, and the strategy what
    arrives there.
    """
    if is_reached(task):
        return
    setattr(task, _MARK, True)
    if not _is_ours(task.__call__):
        task.__call__ = _guarded_call(task)
    if not _is_ours(task.retry):
        task.retry = _marked(guarded_retry(task.retry))
        task.override_max_retries = _Nowhere()
    if not _is_ours(task.on_replace):
        task.on_replace = _marked(handing_on(task.on_replace))
    guard_hooks(task, _marked, _is_ours)
    if not isinstance(task.__dict__.get("__trace__"), _TraceSlot):
        task.__trace__ = _TraceSlot()
    task.Request = _guarded_request(task.Request)
    if task.Strategy != RECEIVE:
        setattr(task, OWN_STRATEGY, task.Strategy)
        task.Strategy = RECEIVE


def _is_ours(function: Any) -> bool:
    return bool(getattr(function, _MARK, False))


def _marked(function: Any) -> Any:
    setattr(function, _MARK, True)
    return function


def _has_own_call(task: type[Any]) -> bool:
    return any("__call__" in owner.__dict__ for owner in task.__mro__ if owner not in (Task, object))


def _guarded_call(task: type[Any]) -> Any:
    own = task.__call__ if _has_own_call(task) else None

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        request = self.request_stack.top
        if request is None or request.called_directly or _ENTERED in request.__dict__:
            # A plain function call, also one from inside the running task: not a delivery.
            return own(self, *args, **kwargs) if own else Task.__call__(self, *args, **kwargs)
        request.__dict__[_ENTERED] = True
        if own is None:
            request._protected = 1  # As Celery's call in a worker does: a direct call inside is one again.
        execution = current()
        if execution is None or execution.task_id != request.id or not execution.watches(request):
            return own(self, *args, **kwargs) if own else self.run(*args, **kwargs)
        execution.enter(request)
        try:
            execution.admit()
            result = own(self, *args, **kwargs) if own else self.run(*args, **kwargs)
            execution.finish()
        except BaseException as exc:
            instead = execution.ended_with(exc)
            if instead is not None:
                raise instead from exc
            raise
        return result

    return _marked(call)


class _Nowhere:
    """Takes the place of `override_max_retries`: Celery would keep one call's limit on the task instance,
    which all greenlets and threads of the process share."""

    def __get__(self, task: Any, owner: Any = None) -> Any:
        raise AttributeError("override_max_retries")

    def __set__(self, task: Any, value: Any) -> None:
        """Forget it: the limit was decided before Celery was asked."""

    def __delete__(self, task: Any) -> None:
        """Nothing is there."""


class _TraceSlot:
    """Takes the place of Task.__trace__: wraps the tracer that Celery puts there."""

    _STORED = "_hardening_trace"

    def __get__(self, task: Any, owner: Any = None) -> Any:
        return None if task is None else task.__dict__.get(self._STORED)

    def __set__(self, task: Any, tracer: Any) -> None:
        from .trace import guarded_trace

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
