"""The acknowledgement policy of one task: what its author asked for, and why."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from .enforced import Enforced

__all__ = ["TaskPolicy", "explicit_attribute", "opt_out_reason", "source_of"]

UNSET: Any = type("Unset", (), {"__repr__": lambda self: "(not set)"})()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPolicy:
    """What is in force for one task. `opt_out` is the written reason, "" when it has none."""

    name: str
    source: str
    opt_out: str
    contradictions: tuple[tuple[Enforced, Any], ...]

    @property
    def early_ack(self) -> bool:
        """Whether the task is acknowledged before it runs."""
        return bool(self.opt_out)


def opt_out_reason(task: Any, patterns: Mapping[str, Any]) -> str:
    """Why this task may be acknowledged early: from the task itself, else from the settings."""
    own = getattr(task, "early_ack", None)
    if isinstance(own, str) and own.strip():
        return own.strip()
    for pattern, reason in patterns.items():
        if fnmatchcase(str(task.name), pattern) and isinstance(reason, str) and reason.strip():
            return reason.strip()
    return ""


def explicit_attribute(task: type[Any], name: str) -> Any:
    """The value that the task's author wrote for an attribute, or UNSET.

    Celery copies settings onto the class when it binds a task, which looks the same. It does so
    after it wrote `_app` into the class, and a class keeps the order in which its names came.
    """
    for owner in task.__mro__:
        if name in owner.__dict__:
            if owner.__module__ == "celery.app.task":
                return UNSET
            names = list(owner.__dict__)
            if "_app" in names and names.index(name) > names.index("_app"):
                return UNSET
            return owner.__dict__[name]
    return UNSET


def source_of(task: Any) -> str:
    """Where the task is written: file and line, as far as Python knows."""
    wrapped = getattr(task, "__wrapped__", None)
    function = wrapped if callable(wrapped) else getattr(task, "run", None)
    for candidate in (function, type(task)):
        try:
            found = inspect.unwrap(candidate)  # type: ignore[arg-type]
            found = getattr(found, "__func__", found)
            line = inspect.getsourcelines(found)[1]
            return f"{inspect.getsourcefile(found)}:{line}"
        except (TypeError, OSError):
            continue
    return f"module {type(task).__module__}"
