"""What becomes of a failed attempt: another try after a delay, or a dead letter with its reason."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from hardening.classification.verdict import Kind, Verdict
from hardening.core.reasons import Reason

from .durations import text_of
from .policy import DEFAULTS, RetryPolicy, delay_after, spread

__all__ = ["RAISED", "TIME_LIMIT", "Action", "Decision", "decide", "told_wait"]

RAISED = "raised"
"""The rule of errors that a task raised on purpose: Permanent, Transient, RetryLater."""

TIME_LIMIT = "celery.time_limit"
"""The rule of Celery's time limits, whose letters have a reason of their own."""

_MOST_SPREAD = 60.0  # On top of a RetryLater: its author named the time.


class Action(StrEnum):
    """Try again, or keep a dead letter."""

    RETRY = "retry"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`delay` is 0 and `reason` is given for DEAD; for RETRY `reason` is None. `text` is for logs."""

    action: Action
    delay: float
    reason: Reason | None
    text: str


def decide(
    verdict: Verdict,
    *,
    attempt: int,
    age: float,
    policy: RetryPolicy,
    asked: bool,
    automatic: bool,
    delay: float | None,
    rng: Callable[[], float],
    broad: bool = False,
    author_limit: bool = False,
) -> Decision:
    """The decision on attempt number `attempt` (from 1), which just failed, `age` s after the publish.

    `policy` is complete (see `merged`). `asked`: the task's author asked for a retry of this error, by
    `autoretry_for` or `self.retry()`; `broad`: by an `autoretry_for` as wide as Exception.
    `automatic`: the task may be retried without being asked. `delay` is the countdown that the author
    gave himself. `author_limit`: the policy's `max_attempts` is the author's own (`task_layer(...).limit`
    is not None, or the call of `self.retry()` gave one).

    Permanent is never tried again, whoever asked. Transient is, up to the policy's limits; an error
    that no rule knows up to `unknown_attempts`, unless its author asked with a limit or by hand.
    """
    said = _said(verdict)
    if verdict.kind is Kind.PERMANENT:
        reason = Reason.TIME_LIMIT if verdict.rule == TIME_LIMIT else Reason.PERMANENT
        return _dead(reason, f"{said}: attempt {attempt} failed, another cannot succeed")
    if not asked and not automatic:
        return _dead(Reason.ERROR, f"{said}: attempt {attempt} failed, the task is not retried on its own")
    limit = _limit(verdict, policy, asked=asked, broad=broad, author_limit=author_limit)
    counted = f"{said}: attempt {attempt}{'' if limit == math.inf else f' of {limit}'} failed"
    if attempt >= limit:
        reason = _at_limit(verdict, policy, attempt=attempt, asked=asked, broad=broad)
        return _dead(reason, f"{counted}, no other follows")
    age, max_age = max(0.0, age), policy.max_age or DEFAULTS.max_age or math.inf
    wait = _wait(verdict, attempt=attempt, policy=policy, delay=delay, left=max_age - age, rng=rng)
    if age + wait > max_age:
        return _dead(
            Reason.MAX_AGE,
            f"{counted} at an age of {text_of(age)}; "
            f"the next, in {text_of(wait)}, would come after max_age {text_of(max_age)}",
        )
    return Decision(action=Action.RETRY, delay=wait, reason=None, text=f"{counted}, again in {text_of(wait)}")


def _dead(reason: Reason, text: str) -> Decision:
    return Decision(action=Action.DEAD, delay=0.0, reason=reason, text=text)


def _said(verdict: Verdict) -> str:
    rule = f"{verdict.rule} {verdict.code}".strip()
    by = f" by {rule}" if rule and rule != verdict.kind else ""
    return f"{verdict.kind}{by}{f' of {verdict.via}' if verdict.via else ''}"


def _limit(verdict: Verdict, policy: RetryPolicy, *, asked: bool, broad: bool, author_limit: bool) -> float:
    most = _given(policy.max_attempts, DEFAULTS.max_attempts)
    if verdict.kind is Kind.TRANSIENT or (asked and (author_limit or not broad)):
        return most
    return min(most, _given(policy.unknown_attempts, DEFAULTS.unknown_attempts))


def _at_limit(verdict: Verdict, policy: RetryPolicy, *, attempt: int, asked: bool, broad: bool) -> Reason:
    unknown = verdict.kind is Kind.UNKNOWN
    if policy.max_attempts == 1 and attempt == 1 and not asked:
        return Reason.ERROR
    if unknown and (broad or not asked):
        return Reason.UNCLASSIFIED
    return Reason.RETRIES_EXHAUSTED


def told_wait(verdict: Verdict, policy: RetryPolicy, rng: Callable[[], float]) -> float:
    """The seconds that the other side or the task itself asked for, spread and capped; 0 for none."""
    told = _told(verdict)
    if told is None:
        return 0.0
    if verdict.rule != RAISED:
        told = min(told, _given(policy.retry_after_cap, DEFAULTS.retry_after_cap))
    return told + spread(told, rng, most=_MOST_SPREAD)


def _told(verdict: Verdict) -> float | None:
    told = verdict.retry_after  # A reader of headers of the project's own may return anything.
    return told if told is not None and 0 <= told < math.inf else None


def _wait(
    verdict: Verdict,
    *,
    attempt: int,
    policy: RetryPolicy,
    delay: float | None,
    left: float,
    rng: Callable[[], float],
) -> float:
    """The seconds to the next try. `left` are those to max_age."""
    told = _told(verdict)
    own = None if delay is None else max(0.0, delay)
    if told is None:
        return policy.delay(attempt, rng) if own is None else own
    if verdict.rule == RAISED:
        # The author's own time, which no cap shortens; only its spread gives way to max_age.
        return max(own or 0.0, told + min(spread(told, rng, most=_MOST_SPREAD), max(0.0, left - told)))
    if own is None:
        return delay_after(policy, attempt, told, rng)
    told = min(told, _given(policy.retry_after_cap, DEFAULTS.retry_after_cap))
    return own if own >= told else told + spread(told, rng)


def _given(value: float | None, default: float | None) -> float:
    found = default if value is None else value
    return math.inf if found is None else found
