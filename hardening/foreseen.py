"""What would follow if every attempt failed in the same way: the delays, their sum, the letter at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .classification.verdict import Verdict
from .core.reasons import Reason
from .retries.decision import Action, Decision, decide
from .retries.policy import DEFAULTS, RetryPolicy

__all__ = ["MOST_ATTEMPTS", "Foreseen", "foresee"]

MOST_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """`delays` are the shortest and longest wait after attempt 1, 2, ...; none: dead-lettered at once.

    `span` are the shortest and longest time from the first failure to the last attempt, if attempts take
    no time. The letter is kept for `reason`; where the waits turn out long, for `if_slow` and earlier.
    `more`: attempts beyond MOST_ATTEMPTS are not listed.
    """

    delays: tuple[tuple[float, float], ...]
    span: tuple[float, float]
    reason: Reason
    if_slow: Reason | None = None
    more: bool = False

    @property
    def attempts(self) -> int:
        """The attempts in all, the first one included, where the waits are short."""
        return len(self.delays) + 1


@dataclass(frozen=True, slots=True)
class _Course:
    delays: list[float]
    age: float
    reason: Reason | None
    """None: it went on beyond MOST_ATTEMPTS."""


def foresee(
    verdict: Verdict, policy: RetryPolicy, *, asked: bool, automatic: bool, broad: bool, author_limit: bool
) -> Foreseen:
    """By the decision itself, asked for each attempt with the least and with the most of chance.

    Arguments as those of `decide`.
    """

    def ask(attempt: int, age: float, chance: float) -> Decision:
        return decide(
            verdict,
            attempt=attempt,
            age=age,
            policy=policy,
            asked=asked,
            automatic=automatic,
            delay=None,
            rng=lambda: chance,
            broad=broad,
            author_limit=author_limit,
        )

    fast, slow = _course(ask, 0.0), _course(ask, 1.0)
    delays = [(low, _longest(ask, number, low, policy)) for number, low in enumerate(fast.delays, 1)]
    longest = [high for _low, high in delays]
    if fast.reason is Reason.MAX_AGE:
        longest.append(_longest(ask, len(delays) + 1, 0.0, policy))
    reason = fast.reason or slow.reason or Reason.MAX_AGE
    return Foreseen(
        delays=tuple(delays),
        span=_span(fast, slow, policy, max(longest, default=0.0)),
        reason=reason,
        if_slow=slow.reason if slow.reason is not reason else None,
        more=fast.reason is None,
    )


_Ask = Callable[[int, float, float], Decision]


def _longest(ask: _Ask, attempt: int, low: float, policy: RetryPolicy) -> float:
    longest = ask(attempt, 0.0, 1.0)
    # A wait that alone is beyond max_age is never waited for; shorter ones by chance are.
    return max(low, _max_age(policy) if longest.action is Action.DEAD else longest.delay)


def _max_age(policy: RetryPolicy) -> float:
    return policy.max_age or DEFAULTS.max_age or 0.0


def _course(ask: _Ask, chance: float) -> _Course:
    age = 0.0
    delays: list[float] = []
    for attempt in range(1, MOST_ATTEMPTS + 1):
        decision = ask(attempt, age, chance)
        if decision.action is Action.DEAD:
            return _Course(delays, age, decision.reason)
        delays.append(decision.delay)
        age += decision.delay
    return _Course(delays, age, None)


def _span(fast: _Course, slow: _Course, policy: RetryPolicy, longest: float) -> tuple[float, float]:
    if slow.reason is not Reason.MAX_AGE or fast.delays == slow.delays:
        return fast.age, slow.age
    # Age ends it somewhere on the way: the last attempt may come one longest wait before max_age.
    max_age = _max_age(policy)
    return min(fast.age, max(0.0, max_age - longest)), max_age
