"""What Celery itself writes to the result backend in the worker's parent goes to the teller.

Celery's request tells its failures, revokes and retries in the midst of methods that do other things as well,
and there is no hook: so the backend of the thread that runs such a method takes them, as long as it runs, and
hands them over. Everywhere else it is Celery's own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from celery import states
from celery.exceptions import TaskRevokedError

from .outcome import Outcome
from .teller import teller_for

__all__ = ["apart"]

logger = logging.getLogger("hardening")

_MARK = "_hardening_tells_apart"
_here = threading.local()


@contextmanager
def apart(request: Any, *, whole: bool = False) -> Iterator[None]:
    """Inside the block the teller tells how this request ended. `whole`: also the rest of its chain and its
    errbacks where Celery does not, for a revoked one."""
    before = getattr(_here, "about", None)
    try:
        _guard(request.task.backend)
    # Some connect as they are made, which is for each greenlet. Celery fails in the same way, and is heard.
    except Exception:
        logger.debug("the result backend cannot be made", exc_info=True)
    whole = whole or (before is not None and before[0] is request and before[1])
    _here.about = (request, whole)
    try:
        yield
    finally:
        _here.about = before


def _guard(backend: Any) -> None:
    if _MARK in vars(backend):
        return
    setattr(backend, _MARK, True)
    failure, revoked, store = backend.mark_as_failure, backend.mark_as_revoked, backend.store_result

    def mark_as_failure(
        task_id: Any,
        exc: Any,
        traceback: Any = None,
        request: Any = None,
        store_result: bool = True,
        call_errbacks: bool = True,
        state: str = states.FAILURE,
        **more: Any,
    ) -> Any:
        if not _is_told_here(task_id):
            more |= {"store_result": store_result, "call_errbacks": call_errbacks, "state": state}
            return failure(task_id, exc, traceback=traceback, request=request, **more)
        return _tell(exc, state, store_result, lambda outcome: outcome.result(traceback).chord().rest())

    def mark_as_revoked(
        task_id: Any,
        reason: str = "",
        request: Any = None,
        store_result: bool = True,
        state: str = states.REVOKED,
        **more: Any,
    ) -> Any:
        if not _is_told_here(task_id):
            return revoked(task_id, reason, request=request, store_result=store_result, state=state, **more)
        is_whole = _here.about[1]

        def pieces(outcome: Outcome) -> Outcome:
            outcome.result().chord()
            return outcome.rest() if is_whole else outcome

        return _tell(TaskRevokedError(reason), state, store_result, pieces)

    def store_result(
        task_id: Any, result: Any, state: str, traceback: Any = None, request: Any = None, **more: Any
    ) -> Any:
        if not _is_told_here(task_id):
            return store(task_id, result, state, traceback=traceback, request=request, **more)
        return _tell(result, state, True, lambda outcome: outcome.result(traceback))

    backend.mark_as_failure = mark_as_failure
    backend.mark_as_revoked = mark_as_revoked
    backend.store_result = store_result


def _is_told_here(task_id: Any) -> bool:
    about = getattr(_here, "about", None)
    return about is not None and about[0].id == task_id


def _tell(exc: Any, state: str, stored: bool, pieces: Callable[[Outcome], Outcome]) -> None:
    request, _ = about = _here.about
    outcome = Outcome(request.app, request._context, exc, state, task=request.task, stored=stored)
    _here.about = None  # Not started, the teller tells it here.
    try:
        teller_for(request.app).tell(pieces(outcome))
    finally:
        _here.about = about
