"""A retry budget: a token bucket that lets retries be a bounded share of a task's work.

Each start of the task deposits `share` of a token, the clock `per_second`; each retry withdraws one.
Over budget a retry is not refused but delayed to the time when the constant alone will have paid for it,
by `longest_wait` at most: more debt than that is not taken on, so that it does not outlive its cause. The
numbers are those of Finagle's RetryBudget: 20 % of the requests, and 10 a second.

The bucket is a document of plain numbers in a store shared by all workers: {"tokens", "recent", "at"}.
`tokens` below 0 are debt. `recent` is what starts deposited in about the last `window` seconds: with
the constant's deposits of that time it bounds the tokens, so that a quiet hour saves up no burst.

A process that dies after it withdrew and before it published has spent one token for nothing. One
that dies before has withdrawn nothing. An unreadable document is a full bucket.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Budget", "BudgetView", "view", "withdraw"]

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """`share` of a token per start, `per_second` tokens a second, those of `window` seconds saved up.

    No retry is delayed by more than `longest_wait` seconds.
    """

    share: float = 0.2
    per_second: float = 10.0
    window: float = 10.0
    longest_wait: float = 600.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"share is {self.share!r}: give a number from 0 to 1")
        for name in ("per_second", "window", "longest_wait"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)!r}: give a finite number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetView:
    """What is in the bucket at one time. `wait` is how long a retry asked for now would be delayed."""

    tokens: float
    capacity: float
    wait: float


@dataclass(frozen=True, slots=True)
class _Bucket:
    tokens: float
    recent: float
    at: float


def withdraw(
    document: Document | None, *, starts: int, now: float, budget: Budget
) -> tuple[dict[str, float], float]:
    """Take one token. Returns the new document, and the seconds by which the retry is to be delayed.

    `starts` are the task's starts that were not reported before.
    """
    bucket = _filled(document, starts=starts, now=now, budget=budget)
    # Debt that would be waited for longer than that is not taken on: it would outlive its cause by hours.
    tokens = max(bucket.tokens - 1.0, -budget.per_second * budget.longest_wait)
    wait = max(0.0, -tokens) / budget.per_second
    return {"tokens": tokens, "recent": bucket.recent, "at": bucket.at}, wait


def view(document: Document | None, now: float, budget: Budget) -> BudgetView:
    """The state at `now`, for people. Changes nothing."""
    bucket = _filled(document, starts=0, now=now, budget=budget)
    return BudgetView(
        tokens=bucket.tokens,
        capacity=_capacity(bucket.recent, budget),
        wait=max(0.0, 1.0 - bucket.tokens) / budget.per_second,
    )


def _filled(document: Document | None, *, starts: int, now: float, budget: Budget) -> _Bucket:
    """The bucket with all deposits up to `now`."""
    bucket = _read(document) or _Bucket(tokens=_capacity(0.0, budget), recent=0.0, at=now)
    elapsed = max(0.0, now - bucket.at)
    # A clock that went back a little earns nothing twice; one that was set back is followed.
    at = bucket.at if bucket.at - budget.window <= now < bucket.at else now
    deposit = budget.share * max(0, starts)
    recent = bucket.recent * math.exp(-elapsed / budget.window) + deposit
    tokens = bucket.tokens + deposit + budget.per_second * elapsed
    return _Bucket(tokens=min(tokens, _capacity(recent, budget)), recent=recent, at=at)


def _capacity(recent: float, budget: Budget) -> float:
    return budget.per_second * budget.window + recent


def _read(document: object) -> _Bucket | None:
    if not isinstance(document, Mapping):
        return None
    numbers = [document.get(name) for name in ("tokens", "recent", "at")]
    if not all(_finite(number) for number in numbers):
        return None
    tokens, recent, at = (float(number or 0.0) for number in numbers)
    return _Bucket(tokens=tokens, recent=max(0.0, recent), at=at)


def _finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15
