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
import math
import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from hardening.classification.current import project_classifier
from hardening.classification.verdict import Kind, Verdict
from hardening.core.errors import Transient
from hardening.core.identity import (
    DEPENDENCY_HEADER,
    DUE_HEADER,
    FIRST_HEADER,
    PARKED_HEADER,
    first_header,
    first_moment,
)
from hardening.core.reasons import Reason
from hardening.core.redaction import project_redactor
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
    "headers_for",
    "judge",
    "still_waiting",
]

logger = logging.getLogger("hardening")

_EARLY_SECONDS = 1.0  # What is due so soon runs now.
_LONGEST_SECONDS = 366 * 86400.0  # A header of another producer may say anything.


class DependencyDown(Transient):
    """The task was put back before its body ran, because what it depends on is known to be down."""


class Next(StrEnum):
    """What becomes of the work. WAIT: a long wait is sent in stages, and this one is not the last."""

    RETRY = "retry"
    PARK = "park"
    WAIT = "wait"
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
    age = _age(execution)
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
    tag = _shown(tag) if tag else None
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
        # The budget makes no letters: what it would make too old waits as long as it may.
        wait = min(traffic.withdraw(execution.task.name), max(0.0, (policy.max_age or math.inf) - age))
        step = replace(step, next=Next.RETRY, delay=max(decision.delay, wait), reason=None)
    return _told(execution, step, decision.text)


def still_waiting(request: Any, now: float) -> Step | None:
    """The next stage of a wait that is not over, or None."""
    due = request.__dict__.get(DUE_HEADER)
    if not isinstance(due, (int, float)) or not _EARLY_SECONDS < due - now < _LONGEST_SECONDS:
        return None
    return Step(next=Next.WAIT, verdict=Verdict(kind=Kind.TRANSIENT, rule="wait"), delay=due - now)


def follow_admission(execution: Any, held: Held) -> Step:
    """What follows where the body may not run now: put back, or given up when that makes it too old."""
    verdict = Verdict(kind=Kind.TRANSIENT, rule="outage", dependency=held.dependency)
    policy = options_of(execution.task).policy(None)
    age = _age(execution)
    step = Step(next=Next.PARK, verdict=verdict, delay=held.seconds, dependency=held.dependency)
    if policy.max_age is not None and age + held.seconds > policy.max_age:
        return replace(step, next=Next.END, reason=Reason.MAX_AGE)
    return step


def first_published(request: Any, started_at: float) -> float:
    """When the work of a message began to age, in seconds since the epoch: its first publish, or its
    first ETA. A message of a producer that did not say counts from its first start."""
    said = first_moment(getattr(request, FIRST_HEADER, None), str(request.id))
    first = said if said is not None and 0 < said <= started_at else started_at
    if attempt_number(getattr(request, "retries", 0)) > 1 or getattr(request, PARKED_HEADER, None):
        return first
    return max(first, min(_time_of(getattr(request, "eta", None)) or first, started_at))


def _age(execution: Any) -> float:
    """The seconds since the work was first published."""
    return max(0.0, time.time() - first_published(execution.request, execution.started_at))


def headers_for(execution: Any, step: Step) -> dict[str, Any]:
    """The state that travels with the next message."""
    request = execution.request
    first = first_published(request, execution.started_at)
    headers: dict[str, Any] = {FIRST_HEADER: first_header(first, str(request.id))}
    dependency = step.dependency
    if step.next is Next.WAIT:
        dependency = getattr(request, DEPENDENCY_HEADER, None)
    if dependency:
        headers[DEPENDENCY_HEADER] = dependency
    if step.delay > execution.longest_hop:
        headers[DUE_HEADER] = time.time() + step.delay
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
    by_hand = asked is not None and not asked.automatic
    if by_hand and verdict.kind is Kind.PERMANENT and verdict.weak:
        return replace(verdict, kind=Kind.TRANSIENT, rule=f"{verdict.rule}, retried by hand")
    if asked is not None and verdict.kind is Kind.UNKNOWN and handled is not None and handled is not exc:
        # self.retry(exc=MyError()) in an `except` block: the error that was caught may say more. That it
        # is permanent says nothing: the author knows what he waits for.
        behind = judge(execution, handled)
        if behind.kind is Kind.TRANSIENT:
            return replace(behind, via=behind.via or type(handled).__qualname__)
    return verdict


def _shown(tag: str) -> str:
    """The tag as it may be logged: one line, bounded, without secrets. A project's function made it."""
    printable = "".join(char if char.isprintable() else " " for char in tag[: MOST_OF_A_TAG * 2])
    return project_redactor().text(printable, ())[:MOST_OF_A_TAG]


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
