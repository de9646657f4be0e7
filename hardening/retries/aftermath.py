"""What follows when an attempt failed: the error is judged, and the attempt retried, parked or given up.

The argument, with the process dying after each step:

    judge and decide (pure)     nothing has happened yet: the message comes back and the body runs again
    note the failure, budget    one failure too many is counted: a dependency is probed a little early
    publish the retry           two messages of the same work for a moment: the old one is unacknowledged
                                and comes back. At least once, honestly.
    tell the parent             the same until it acknowledges

A retry that cannot be published is not a failure of the work: see `hardening.returning`.
"""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from hardening.classification.current import project_classifier
from hardening.classification.verdict import Kind, Verdict
from hardening.core.errors import Transient
from hardening.core.identity import DEPENDENCY_HEADER, FIRST_HEADER, PARKED_HEADER
from hardening.core.reasons import Reason
from hardening.history import attempt_number

from .decision import RAISED, Action, decide, told_wait
from .options import TaskOptions, options_of
from .traffic import MOST_OF_A_TAG, Held, Traffic

__all__ = [
    "Asked",
    "DependencyDown",
    "Next",
    "Step",
    "first_published",
    "follow",
    "follow_admission",
    "judge",
]

logger = logging.getLogger("hardening")


class DependencyDown(Transient):
    """The task was put back before its body ran, because what it depends on is known to be down."""


class Next(StrEnum):
    """What becomes of the work."""

    RETRY = "retry"
    PARK = "park"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A retry that the task's author asked for, by `self.retry()` or, where `automatic`, by autoretry_for.

    `delay` are the seconds that he gave, `max_attempts` the limit that he gave in the call.
    """

    automatic: bool = False
    broad: bool = False
    delay: float | None = None
    max_attempts: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What follows: `delay` in seconds for a retry or a park, `reason` where the work ends."""

    next: Next
    verdict: Verdict
    delay: float = 0.0
    reason: Reason | None = None
    dependency: str | None = None


def judge(execution: Any, exc: BaseException) -> Verdict:
    """The verdict on an error of this execution's body. Never raises."""
    request = execution.request
    call = None if request is None else (execution.task.run, request.args or (), request.kwargs or {})
    return project_classifier().judge(exc, own=options_of(execution.task).book, call=call)


def follow(execution: Any, exc: BaseException | None, asked: Asked | None) -> Step:
    """Decide what follows a failed attempt, and note it where dependencies and budgets are kept.

    `exc` None: the author asked for a retry without an error. `asked` None: nobody asked.
    """
    options = options_of(execution.task)
    verdict = _verdict(execution, exc, asked)
    if asked is None and verdict.rule == RAISED:
        asked = Asked(automatic=True)  # Whoever raises Transient or RetryLater asks for another try.
    policy = options.policy(verdict.retry)
    if asked is not None and asked.max_attempts is not None:
        policy = replace(policy, max_attempts=asked.max_attempts)
    age = max(0.0, time.time() - first_published(execution.request, execution.started_at))
    decision = decide(
        verdict,
        attempt=attempt_number(getattr(execution.request, "retries", 0)),
        age=age,
        policy=policy,
        author_limit=_author_limit(options, asked),
        asked=asked is not None,
        broad=asked is not None and asked.broad,
        automatic=options.automatic(execution.task, exc),
        delay=None if asked is None else asked.delay,
        rng=execution.random,
    )
    tag = verdict.dependency or (options.dependency if verdict.kind is Kind.TRANSIENT else None)
    tag = tag[:MOST_OF_A_TAG] if tag else None
    traffic: Traffic = execution.traffic
    step = Step(next=Next.END, verdict=verdict, reason=decision.reason, dependency=tag)
    if tag and verdict.kind is Kind.TRANSIENT:
        wait = traffic.failed(tag, execution)
        if wait is not None and _may_be_parked(execution, exc, decision.reason, asked):
            wait = max(wait, told_wait(verdict, policy, execution.random))
            if policy.max_age is None or age + wait <= policy.max_age:
                step = replace(step, next=Next.PARK, delay=wait, reason=None)
            else:
                step = replace(step, reason=Reason.MAX_AGE)
            return _told(execution, step, f"{tag} is down; put back for {wait:.0f} s")
    else:
        traffic.said_nothing(execution)
    if decision.action is Action.RETRY:
        wait = traffic.withdraw(execution.task.name)
        step = replace(step, next=Next.RETRY, delay=max(decision.delay, wait), reason=None)
    return _told(execution, step, decision.text)


def follow_admission(execution: Any, held: Held) -> Step:
    """What follows where the body may not run now: put back, or given up when that makes it too old."""
    verdict = Verdict(kind=Kind.TRANSIENT, rule="outage", dependency=held.dependency)
    policy = options_of(execution.task).policy(None)
    age = max(0.0, time.time() - first_published(execution.request, execution.started_at))
    step = Step(next=Next.PARK, verdict=verdict, delay=held.seconds, dependency=held.dependency)
    if policy.max_age is not None and age + held.seconds > policy.max_age:
        return replace(step, next=Next.END, reason=Reason.MAX_AGE)
    return step


def first_published(request: Any, started_at: float) -> float:
    """When the work of a message began to age, in seconds since the epoch: its first publish, or its
    first ETA. A message of a producer that did not say counts from its first start."""
    header = getattr(request, FIRST_HEADER, None)
    first = started_at
    if isinstance(header, (int, float)) and 0 < header <= started_at:
        first = float(header)
    if attempt_number(getattr(request, "retries", 0)) > 1 or getattr(request, PARKED_HEADER, None):
        return first
    return max(first, min(_time_of(getattr(request, "eta", None)) or first, started_at))


def headers_for(execution: Any, step: Step) -> dict[str, Any]:
    """The state that travels with the next message."""
    request = execution.request
    headers: dict[str, Any] = {FIRST_HEADER: first_published(request, execution.started_at)}
    if step.dependency:
        headers[DEPENDENCY_HEADER] = step.dependency
    parked = getattr(request, PARKED_HEADER, None)
    count = (parked if isinstance(parked, int) else 0) + (step.next is Next.PARK)
    if count:
        headers[PARKED_HEADER] = count
    return headers


def _verdict(execution: Any, exc: BaseException | None, asked: Asked | None) -> Verdict:
    if exc is None:
        return Verdict(kind=Kind.TRANSIENT, rule="task: self.retry()")
    verdict: Verdict = execution.verdict_on(exc)
    handled = sys.exc_info()[1]
    if asked is not None and verdict.kind is Kind.UNKNOWN and handled is not None and handled is not exc:
        # self.retry(exc=MyError()) in an `except` block: the error that was caught says more.
        behind = judge(execution, handled)
        if behind.kind is not Kind.UNKNOWN:
            return replace(behind, via=behind.via or type(handled).__qualname__)
    return verdict


def _author_limit(options: TaskOptions, asked: Asked | None) -> bool:
    return (asked is not None and asked.max_attempts is not None) or options.limits_attempts


def _may_be_parked(
    execution: Any, exc: BaseException | None, reason: Reason | None, asked: Asked | None
) -> bool:
    """Not a task that is not to be repeated at all, nor one that is too old."""
    if reason is Reason.MAX_AGE:
        return False
    options = options_of(execution.task)
    return asked is not None or options.automatic(execution.task, exc)


def _time_of(eta: Any) -> float | None:
    if isinstance(eta, str):
        try:
            eta = datetime.fromisoformat(eta)
        except ValueError:
            return None
    if not isinstance(eta, datetime):
        return None
    return (eta if eta.tzinfo else eta.replace(tzinfo=UTC)).timestamp()


def _told(execution: Any, step: Step, text: str) -> Step:
    task = execution.task
    execution.decided = (step, text)
    logger.info(
        "task %s[%s]: %s",
        task.name,
        execution.task_id,
        text,
        extra={
            "task_id": execution.task_id,
            "task_name": task.name,
            "verdict": step.verdict.kind.value,
            "rule": step.verdict.rule,
            "next": step.next.value,
        },
    )
    return step
