"""The teller's own result backend gives up soon, so that its thread notices soon when it is back."""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery

__all__ = ["make_impatient"]

logger = logging.getLogger("hardening")

_SOCKET_SECONDS = 5.0
_POLICY = {"max_retries": 0, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.1}


def make_impatient(app: Celery) -> None:
    """Give the backend of this thread short time-outs and no retries. Not one that all threads share."""
    try:
        backend: Any = app.backend
        if backend.thread_safe:
            return
        backend.max_retries = 0
        backend.retry_policy = {**backend.retry_policy, **_POLICY}
        backend.on_task_call = _nothing  # Nobody here waits for the results of what is sent.
        params = getattr(backend, "connparams", None)  # Redis. Its client is made later, by them.
        if isinstance(params, dict):
            for name in ("socket_timeout", "socket_connect_timeout"):
                if name in params:
                    params[name] = min(params[name] or _SOCKET_SECONDS, _SOCKET_SECONDS)
    # A backend that does not exist, or is odd: said where it is used.
    except Exception:
        logger.debug("the result backend keeps its own time-outs", exc_info=True)


def _nothing(*_: Any, **__: Any) -> dict[str, Any]:
    return {}
