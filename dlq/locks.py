"""Whether a database's error says that others hold a lock, and trying again where they do."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from random import random
from typing import ParamSpec, TypeVar

from django.db import OperationalError

__all__ = ["is_lock_conflict", "patient"]

P = ParamSpec("P")
T = TypeVar("T")

_TRIES = 10
_PAUSE_SECONDS = 0.05

_LOCK_SIGNS = ("deadlock", "locked", "lock wait timeout", "could not serialize", "record has changed")


def is_lock_conflict(exc: Exception) -> bool:
    """Told by its text: each database has its own codes."""
    text = str(exc).lower()
    return any(sign in text for sign in _LOCK_SIGNS)


def patient(transaction: Callable[P, T]) -> Callable[P, T]:
    """For a function that is one transaction: it is done again where it lost against others, a few times."""

    @wraps(transaction)
    def trying(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_TRIES - 1):
            try:
                return transaction(*args, **kwargs)
            except OperationalError as exc:
                if not is_lock_conflict(exc):
                    raise
            time.sleep(random() * _PAUSE_SECONDS)
        return transaction(*args, **kwargs)

    return trying
