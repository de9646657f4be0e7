"""A replay that replaces itself hands its identity on: the outcome of the replacement is that of the replay.

The replacement has the task id of who it replaces, but none of its headers: without them neither its success
nor its letter would name the letter that was replayed. They are given to a replacement that is one task, or
the first of what goes on as a chain. Where other tasks come before the one with that id, one of them may fail
and that one never run: nothing is handed on then, and the replay has done its part (see `trace`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .core.identity import KEY_HEADER, LETTER_HEADER, REPLAY_HEADER
from .current import current

__all__ = ["handing_on"]

_HANDED_ON = (KEY_HEADER, REPLAY_HEADER, LETTER_HEADER)


def handing_on(own: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A task's `on_replace`, with the identity of its replay on the replacement."""

    def on_replace(self: Any, sig: Any) -> Any:
        execution = current()
        if execution is not None and execution.task_id == self.request.id:
            headers = execution.delivery.headers or {}
            first = _first_with(sig, self.request.id)
            if LETTER_HEADER in headers and first is not None:
                mine = {name: headers[name] for name in _HANDED_ON if name in headers}
                first["options"]["headers"] = {**(first["options"].get("headers") or {}), **mine}
                execution.handed_on = True
        return own(self, sig)

    return on_replace


def _first_with(sig: Any, task_id: str) -> Any:
    """The task that runs first, if it is the one with this id."""
    while sig["task"] == "celery.chain" and sig["kwargs"].get("tasks"):
        sig = sig["kwargs"]["tasks"][0]
    return sig if sig["options"].get("task_id") == task_id and not sig.get("subtask_type") else None
