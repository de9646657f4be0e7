"""Assertions on what becomes of a task's errors: retried at these delays, kept as a dead letter, or done.

They need neither broker nor worker nor waiting, and no particular test framework.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from types import EllipsisType
from typing import Any

from hardening.core.reasons import Reason
from hardening.rehearsal import CannotRehearse, Raises, rehearse
from hardening.rehearsed import Rehearsal, RehearsedAttempt

__all__ = [
    "CannotRehearse",
    "Rehearsal",
    "RehearsedAttempt",
    "assert_dead_letters",
    "assert_done",
    "assert_retries",
    "rehearse",
]

Delay = float | tuple[float, float]

_TOLERANCE = 0.01
_LEAST_TOLERANCE = 0.01  # Seconds: a delay of 0 has no per cent.
_AT_MOST = 100


def assert_retries(
    task: Any,
    error: Raises | None,
    *,
    delays: Sequence[Delay | EllipsisType],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> None:
    """A task that fails with `error` each time is retried at exactly these delays, and then no more.

    A delay is a number of seconds, or the range (shortest, longest) that jitter draws from; both within
    1 %. A list that ends in `...` says how the retries begin: [(1, 5), (1, 10), ...]. `error` None: the
    body itself runs, as often as the retries say, once for the shortest delays and once for the longest.
    """
    __tracebackhide__ = True
    expected, more = _expected(delays)
    most = len(expected) + 1 if more else max(_AT_MOST, len(expected) + 2)
    shortest = rehearse(task, args, kwargs, raises=error, jitter="shortest", max_attempts=most)
    longest = rehearse(task, args, kwargs, raises=error, jitter="longest", max_attempts=most)
    found = list(zip_longest(shortest.delays, longest.delays))
    considered = found[: len(expected)] if more else found
    if len(considered) == len(expected) and all(map(_is, considered, expected)):
        return
    raise AssertionError(
        "\n".join(
            [
                "the task is not retried at these delays",
                f"  expected: {_text(expected, more=more)}",
                f"  happens:  {_text(found, more=longest.ended == 'unfinished')}",
                "at the longest delays:",
                longest.describe(),
            ]
        )
    )


def assert_dead_letters(
    task: Any,
    error: Raises | None,
    *,
    reason: Reason | str | None = None,
    attempts: int | None = 1,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Rehearsal:
    """A task that fails with `error` each time is kept as a dead letter after so many attempts in all.

    `reason` None and `attempts` None: any. `error` None: the body itself runs. Gives the rehearsal,
    whose `letter` is the dead letter.
    """
    __tracebackhide__ = True
    wanted = None if reason is None else Reason(reason)
    rehearsal = rehearse(task, args, kwargs, raises=error, max_attempts=max(_AT_MOST, (attempts or 0) + 1))
    same_reason = wanted is None or rehearsal.reason is wanted
    same_attempts = attempts is None or rehearsal.runs == attempts
    if rehearsal.ended == "dead_letter" and same_reason and same_attempts:
        return rehearsal
    expected = "a dead letter"
    if wanted is not None:
        expected += f' with the reason "{wanted}"'
    if attempts is not None:
        expected += f", after {attempts} {'attempt' if attempts == 1 else 'attempts'}"
    raise AssertionError(f"the task does not end as expected\n  expected: {expected}\n{rehearsal.describe()}")


def assert_done(task: Any, *args: Any, **kwargs: Any) -> Rehearsal:
    """The task's own body, called with these arguments, returns, perhaps after retries.

    Gives the rehearsal, whose `result` is what the body returned.
    """
    __tracebackhide__ = True
    rehearsal = rehearse(task, args, kwargs)
    if rehearsal.ended == "done":
        return rehearsal
    raise AssertionError(f"the task does not get done\n{rehearsal.describe()}")


def _expected(delays: Sequence[Any]) -> tuple[list[tuple[float, float]], bool]:
    more = bool(delays) and delays[-1] is ...
    ranges = []
    for delay in delays[:-1] if more else delays:
        low, high = delay if isinstance(delay, (tuple, list)) else (delay, delay)
        if not 0 <= low <= high:
            raise ValueError(f"{delay!r} is no delay: give seconds, or (shortest, longest)")
        ranges.append((float(low), float(high)))
    return ranges, more


def _is(found: tuple[float | None, float | None], expected: tuple[float, float]) -> bool:
    return all(
        there is not None and math.isclose(there, wanted, rel_tol=_TOLERANCE, abs_tol=_LEAST_TOLERANCE)
        for there, wanted in zip(found, expected, strict=True)
    )


def _text(delays: Sequence[tuple[float | None, float | None]], *, more: bool) -> str:
    """As a test would write them."""
    texts = [_number(low) if low == high else f"({_number(low)}, {_number(high)})" for low, high in delays]
    return f"[{', '.join([*texts, '...'] if more else texts)}]"


def _number(seconds: float | None) -> str:
    return "no retry" if seconds is None else f"{round(seconds, 2):g}"
