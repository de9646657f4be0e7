"""A retry policy: how long to wait after each failed attempt, and when to stop.

The delays are exponential with full jitter, as in Marc Brooker, "Exponential Backoff And Jitter"
(AWS Architecture Blog, 2015), with a floor. After failed attempt n = 1, 2, ...

    delay(n) = U(floor, max(floor, min(cap, base * 2 ** (n - 1))))

and without jitter the upper end of that range. An explicit list of delays is taken as it stands, its
last entry again and again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any

from .durations import delays_of, seconds_of, text_of
from .reading import Problem, Reader, count_of, flag_of, positive_seconds_of, read_options

__all__ = ["DEFAULTS", "RetryPolicy", "delay_after", "merged", "spread"]

_SHOWN = 1000  # Entries in a schedule.
_SUMMED = 100_000  # Entries added up for a span.

_READERS: Mapping[str, Reader] = {
    "delays": delays_of,
    "base": seconds_of,
    "cap": seconds_of,
    "floor": seconds_of,
    "jitter": flag_of,
    "max_attempts": count_of,
    "max_age": positive_seconds_of,
    "retry_after_cap": seconds_of,
    "unknown_attempts": count_of,
    "automatic": flag_of,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """What one layer (a rule, a task, the project) says of retries. None means: not given here.

    Durations are seconds. `max_attempts` and `unknown_attempts` count all attempts, the first one
    included; `math.inf` is no limit, and then `max_age` still ends the retries. `max_age` counts from
    the first publish. `unknown_attempts` is the limit for errors that no rule knows; `automatic` False
    means that only what asks for a retry is retried. `retry_after_cap` bounds the wait that another side
    asks for. A list of `delays` without `max_attempts` means one
    attempt more than there are delays. Raises ValueError for values that make no sense.
    """

    delays: tuple[float, ...] | None = None
    base: float | None = None
    cap: float | None = None
    floor: float | None = None
    jitter: bool | None = None
    max_attempts: float | None = None
    max_age: float | None = None
    retry_after_cap: float | None = None
    unknown_attempts: float | None = None
    automatic: bool | None = None

    def __post_init__(self) -> None:
        for name, reader in _READERS.items():
            value = getattr(self, name)
            if value is not None:
                try:
                    object.__setattr__(self, name, reader(value))
                except ValueError as wrong:
                    raise ValueError(f"{name}: {wrong}") from None
        if self.cap is not None and self.floor is not None and self.cap < self.floor:
            raise ValueError(f"cap: {text_of(self.cap)} is below the floor of {text_of(self.floor)}")

    @classmethod
    def of(cls, raw: Mapping[str, Any] | RetryPolicy) -> RetryPolicy:
        """A policy from a dict such as {"delays": "0 s, 30 s", "max_age": "1 d"}, keys in any case.

        Raises ValueError that names everything that cannot be used.
        """
        policy, problems = cls.read(raw)
        if problems:
            raise ValueError("; ".join(map(str, problems)))
        return policy

    @classmethod
    def read(cls, raw: object) -> tuple[RetryPolicy, list[Problem]]:
        """The same without an error: what can be used of `raw`, and what cannot."""
        if isinstance(raw, RetryPolicy):
            return raw, []
        values, problems = read_options(raw, _READERS)
        cap, floor = values.get("cap"), values.get("floor")
        if cap is not None and floor is not None and cap < floor:
            del values["cap"], values["floor"]
            problems.append(Problem("cap", f"{text_of(cap)} is below the floor of {text_of(floor)}"))
        return cls(**values), problems

    def over(self, lower: RetryPolicy) -> RetryPolicy:
        """This layer, and where it says nothing, the lower one.

        A list of delays here hides the lower base, cap and floor; a base or cap here hides the lower
        list. Where a floor and a cap of two layers exclude each other, this layer's holds for both.
        """
        values = {f.name: _first(getattr(self, f.name), getattr(lower, f.name)) for f in fields(self)}
        if self.delays is not None:
            values.update(base=self.base, cap=self.cap, floor=self.floor)
        elif self.base is not None or self.cap is not None:
            values["delays"] = None
        cap, floor = values["cap"], values["floor"]
        if cap is not None and floor is not None and cap < floor:
            values["cap"] = values["floor"] = floor if self.cap is None else cap
        return RetryPolicy(**values)

    @property
    def limit(self) -> float | None:
        """The attempts in all that this layer allows: said, or counted from its list of delays."""
        if self.max_attempts is None and self.delays is not None:
            return len(self.delays) + 1
        return self.max_attempts

    def bounds(self, attempt: int) -> tuple[float, float]:
        """The shortest and the longest delay after failed attempt `attempt` (1, 2, ...)."""
        step = max(attempt, 1) - 1
        if self.delays is not None:
            delay = self.delays[min(step, len(self.delays) - 1)]
            return delay, delay
        low = _first(self.floor, DEFAULTS.floor)
        # 1023 is the largest power of two that is a float; a product beyond is inf, and the cap holds.
        grown = _first(self.base, DEFAULTS.base) * 2.0 ** min(step, 1023)
        high = max(low, min(_first(self.cap, DEFAULTS.cap), grown))
        return (low if _first(self.jitter, DEFAULTS.jitter) else high), high

    def delay(self, attempt: int, rng: Callable[[], float]) -> float:
        """The seconds to wait after failed attempt `attempt`. `rng` draws from [0, 1)."""
        low, high = self.bounds(attempt)
        return min(high, low + rng() * (high - low))

    def schedule(self) -> list[tuple[float, float]]:
        """The bounds of each delay, at most 1000.

        Without a limit of attempts: those that fit into `max_age` when each is at its longest.
        """
        shown = list(islice(self._each(), _SHOWN))
        if _first(self.limit, DEFAULTS.max_attempts) < math.inf:
            return shown
        total, fitting = 0.0, []
        for low, high in shown:
            total += high
            if total > _first(self.max_age, DEFAULTS.max_age):
                break
            fitting.append((low, high))
        return fitting

    def span(self) -> tuple[float, float]:
        """The shortest and the longest time from the first failure to the last try.

        Assumes that each attempt takes no time and fails. Exact up to 100 000 attempts.
        """
        max_age = _first(self.max_age, DEFAULTS.max_age)
        lows = highs = fitting = longest = 0.0
        for low, high in islice(self._each(), _SUMMED):
            lows, highs, longest = lows + low, highs + high, max(longest, high)
            if highs <= max_age:
                fitting = highs
            if lows > max_age:
                break
        if highs <= max_age:
            return lows, highs
        if lows == highs:
            return fitting, fitting
        # Stopped by age: the last try may come as early as one longest delay before max_age.
        return min(lows, max(0.0, max_age - longest)), max_age

    def describe(self) -> str:
        """One line, such as "10 attempts: 1-5 s, 1-10 s, 1-20 s ... 1 s-30 m; at most 1 d"."""
        limit = _first(self.limit, DEFAULTS.max_attempts)
        if limit == 1:
            return "1 attempt: never tried again"
        count = "no limit of attempts" if limit == math.inf else f"{limit} attempts"
        schedule = self.schedule() or [self.bounds(1)]
        texts = [_range(*bounds) for bounds in schedule]
        if len(texts) > 1 and len(set(texts)) == 1:
            shown = f"{texts[0]} each"
        elif len(texts) <= 4:
            shown = ", ".join(texts)
        else:
            shown = f"{', '.join(texts[:3])} ... {texts[-1]}"
        return f"{count}: {shown}; at most {text_of(_first(self.max_age, DEFAULTS.max_age))}"

    def _each(self) -> Iterator[tuple[float, float]]:
        limit = _first(self.limit, DEFAULTS.max_attempts)
        attempt = 1
        while attempt < limit:
            yield self.bounds(attempt)
            attempt += 1


DEFAULTS = RetryPolicy(
    base=5.0,
    cap=1800.0,
    floor=1.0,
    jitter=True,
    max_attempts=10,
    max_age=86400.0,
    retry_after_cap=1800.0,
    unknown_attempts=3,
    automatic=True,
)
"""What holds where nobody says anything. Retries of an hour bridge most outages; a day bounds the rest.
No wait comes near the hour after which Redis delivers a waiting message again."""


def merged(
    *,
    rule: RetryPolicy | None = None,
    task: RetryPolicy | None = None,
    project: RetryPolicy | None = None,
) -> RetryPolicy:
    """The policy in force, complete: only `delays` may still be None.

    Who knows the error says how long to wait: rule, then task, project, default. Who knows the work
    says how often: task, then rule, project, default.
    """
    none = RetryPolicy()
    rule, task, project = rule or none, task or none, project or none
    waits = rule.over(task).over(project)
    complete = replace(waits, delays=None).over(DEFAULTS)
    limit, max_age, unknown, automatic = (
        next(
            found for layer in (task, rule, project, DEFAULTS) if (found := getattr(layer, name)) is not None
        )
        for name in ("limit", "max_age", "unknown_attempts", "automatic")
    )
    return replace(
        complete,
        delays=waits.delays,
        max_attempts=limit,
        max_age=max_age,
        unknown_attempts=unknown,
        automatic=automatic,
    )


def spread(wait: float, rng: Callable[[], float], *, most: float = math.inf) -> float:
    """Up to 10 % of a wait that others were told as well, at least up to 1 s: a herd returns apart."""
    return rng() * min(most, max(1.0, wait * 0.1))


def delay_after(policy: RetryPolicy, attempt: int, retry_after: float, rng: Callable[[], float]) -> float:
    """The delay where the other side asked for `retry_after` seconds.

    Never earlier than asked for, as far as `retry_after_cap` allows, and never earlier than the
    policy's own delay.
    """
    asked: float = min(max(0.0, retry_after), _first(policy.retry_after_cap, DEFAULTS.retry_after_cap))
    return max(policy.delay(attempt, rng), asked + spread(asked, rng))


def _first(value: Any, default: Any) -> Any:
    return default if value is None else value


def _range(low: float, high: float) -> str:
    short, long = text_of(low), text_of(high)
    if short == long:
        return long
    if short.split(" ")[1:] == long.split(" ")[1:]:
        return f"{short.split(' ')[0]}-{long}"
    return f"{short}-{long}"
