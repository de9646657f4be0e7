"""`self.retry()`, as a task's author and Celery's autoretry_for call it, under the one retry policy."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from celery.app.task import Task
from celery.exceptions import Ignore, Reject, Retry

from hardening.classification.verdict import Kind
from hardening.core.identity import ATTEMPTS_HEADER
from hardening.current import current

from .aftermath import Asked, Next, follow, judge
from .options import is_celerys_own, options_of
from .sending import own_headers, send, send_raw

__all__ = ["guarded_retry"]

logger = logging.getLogger("hardening")

_POSITIONS = ("args", "kwargs", "exc", "throw", "eta", "countdown", "max_retries")
_AUTORETRY = "celery.app.autoretry"


def guarded_retry(own: Any) -> Any:
    """A task's `retry` with the project's policy around it. Outside a delivery it is the task's own."""
    ours = _takes_ours(own)

    @functools.wraps(own)
    def retry(self: Any, *given: Any, **options: Any) -> Any:
        execution = current()
        request = self.request_stack.top
        if execution is None or request is None or request.id != execution.task_id:
            return own(self, *given, **options)
        if request.is_eager and not execution.rehearsed:
            return own(self, *given, **options)
        execution.enter(request)  # It may not have been: a retry in before_start.
        named = {**dict(zip(_POSITIONS, given, strict=False)), **options}
        exc = named.get("exc")
        error = exc if isinstance(exc, BaseException) else sys.exc_info()[1]
        if isinstance(error, (Ignore, Reject, Retry)):
            raise error  # They say how the message ends: nothing is left to be retried.
        if execution.is_over:
            return _too_late(execution, error)
        if not ours or is_celerys_own(self):
            return _foreign(execution, own, given, options, error)
        by_celery = sys._getframe(1).f_globals.get("__name__") == _AUTORETRY
        asked = _asked(self, named, by_celery=by_celery)
        step = follow(execution, error, asked)
        if step.next is Next.END:
            execution.given_up = (step, error)
            if error is not None and step.verdict.kind is Kind.PERMANENT:
                raise error
            # Celery raises what it raises when retries are used up.
            return own(self, **{**named, "max_retries": request.retries})
        answer = send(execution, own, step, error, {k: v for k, v in named.items() if k != "exc"})
        if named.get("throw", True):
            raise answer
        return answer

    retry.sends_with = own if ours else Task.retry  # type: ignore[attr-defined]
    return retry


def _too_late(execution: Any, error: Any) -> Retry:
    """In a hook, after the letter was kept or a retry sent: another one would double the work."""
    logger.warning(
        "task %s[%s] asks for a retry after its end: none is sent", execution.task.name, execution.task_id
    )
    return Retry(exc=error)


def _asked(task: Any, named: Mapping[str, Any], *, by_celery: bool) -> Asked:
    if by_celery:
        # Its countdown and limit come from the task's options, which are part of the policy already.
        return Asked(automatic=True, broad=options_of(task).broad)
    limit = named.get("max_retries")
    return Asked(delay=_delay(named), max_attempts=None if limit is None else max(0, limit) + 1)


def _delay(named: Mapping[str, Any]) -> float | None:
    eta, countdown = named.get("eta"), named.get("countdown")
    if isinstance(eta, datetime):
        now = datetime.now(eta.tzinfo or UTC)
        return max(0.0, ((eta if eta.tzinfo else eta.replace(tzinfo=UTC)) - now).total_seconds())
    return None if countdown is None else max(0.0, float(countdown))


def _foreign(execution: Any, own: Any, given: Any, options: dict[str, Any], error: Any) -> Any:
    """A project's own retry with another signature: asked as it is, but not for what can never succeed."""
    if error is not None and judge(execution, error).kind is Kind.PERMANENT:
        raise error
    if _takes(own, "headers"):
        history = execution.history_with(error)
        carried = {ATTEMPTS_HEADER: history} if history else {}
        options["headers"] = {**own_headers(execution.request), **(options.get("headers") or {}), **carried}
    try:
        return send_raw(execution, error, 0.0, lambda: own(execution.task, *given, **options))
    except (Retry, Reject, Ignore):
        raise
    except Exception:
        execution.exhausted = True
        raise


def _takes_ours(own: Any) -> bool:
    return own is Task.retry or all(
        _takes(own, name) for name in ("exc", "throw", "countdown", "eta", "max_retries", "headers")
    )


def _takes(own: Any, name: str) -> bool:
    parameters = inspect.signature(own).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
