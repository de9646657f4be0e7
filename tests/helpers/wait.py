"""Wait for an event instead of for time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    predicate: Callable[[], T],
    timeout: float = 10.0,
    message: str | Callable[[], str] = "",
    *,
    interval: float = 0.02,
) -> T:
    """Return the first truthy value of `predicate`; fail with `message` when none comes in `timeout` seconds.

    `message` may be a function, called only on failure, to show the state at that moment.
    """
    deadline = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= deadline:
            text = message() if callable(message) else message
            raise AssertionError(
                f"not within {timeout} s: {text or getattr(predicate, '__name__', predicate)!s}"
            )
        time.sleep(interval)
