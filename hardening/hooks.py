"""A task's own hooks, which Celery calls when its end is settled: an error of theirs changes nothing.

The argument. `on_failure` runs after the letter was kept and the failure stored, `on_retry` after the next
message was sent, `on_success` and `after_return` after the result was stored. Celery takes an error of one
of them for an error of the task: the result then shows the hook's error in place of the body's, and a task
that is being tried again is told to its callers as failed, once for each attempt, so that a chord gives up
on a member that will succeed. Celery 5.7 has stopped this for the last two. Here all four are logged.

`before_start` is left alone: it may refuse the task, and nothing has happened then.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

from celery.app.task import Task
from celery.exceptions import Reject

__all__ = ["HOOKS", "guard_hooks"]

logger = logging.getLogger("hardening")

HOOKS = ("on_failure", "on_retry", "on_success", "after_return")

_AFTER_A_RESULT = ("on_success", "after_return")
"""In these Celery 5.7 lets a Reject through, as the author's word about the message."""


def guard_hooks(task: type[Any], mark: Callable[[Any], Any], is_marked: Callable[[Any], bool]) -> None:
    """Guard the hooks that a task class has of its own. Celery calls the others not at all."""
    for name in HOOKS:
        own = inspect.getattr_static(task, name)
        if inspect.isfunction(own) and own is not getattr(Task, name) and not is_marked(own):
            setattr(task, name, mark(_guarded(own, name)))


def _guarded(own: Any, name: str) -> Any:
    @functools.wraps(own)
    def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return own(self, *args, **kwargs)
        except Exception as exc:
            request = self.request_stack.top
            if isinstance(exc, MemoryError) or (request is not None and request.is_eager):
                raise  # The process must end; or a test calls the task, and wants to see its errors.
            if isinstance(exc, Reject) and name in _AFTER_A_RESULT:
                raise
            logger.exception(
                "%s of task %s[%s] raised; what became of the task stands",
                name,
                self.name,
                getattr(request, "id", None),
                extra={"task_id": getattr(request, "id", None), "task_name": self.name},
            )
            return None

    return hook
