"""The execution that this thread or greenlet is in. Nothing else: it is asked for with each task."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .execution import Execution

__all__ = ["current", "running"]

running: ContextVar[Execution | None] = ContextVar("hardening_execution", default=None)

current = running.get
"""The execution that this thread or greenlet is in, or None."""
