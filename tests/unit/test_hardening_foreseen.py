"""What is foreseen is what the decision would say, attempt after attempt."""

from __future__ import annotations

import math
import random

from hardening.classification.verdict import Kind, Verdict
from hardening.core.reasons import Reason
from hardening.foreseen import MOST_ATTEMPTS, foresee
from hardening.retries.decision import Action, decide
from hardening.retries.policy import RetryPolicy, merged

TRANSIENT = Verdict(kind=Kind.TRANSIENT, rule="r")
UNKNOWN = Verdict(kind=Kind.UNKNOWN, rule="none")


def ahead(verdict: Verdict = TRANSIENT, *, asked=False, automatic=True, broad=False, limited=False, **policy):
    return foresee(
        verdict,
        merged(task=RetryPolicy(**policy)),
        asked=asked,
        automatic=automatic,
        broad=broad,
        author_limit=limited,
    )


def test_the_defaults_are_ten_attempts_with_growing_waits() -> None:
    found = ahead()

    assert found.attempts == 10
    assert found.delays[:3] == ((1.0, 5.0), (1.0, 10.0), (1.0, 20.0))
    assert found.span == merged().span()
    assert (found.reason, found.if_slow, found.more) == (Reason.RETRIES_EXHAUSTED, None, False)


def test_a_permanent_error_and_a_task_that_nobody_retries_are_dead_at_once() -> None:
    permanent = ahead(Verdict(kind=Kind.PERMANENT, rule="r"))
    left_alone = ahead(automatic=False)

    assert (permanent.delays, permanent.span, permanent.reason) == ((), (0.0, 0.0), Reason.PERMANENT)
    assert (left_alone.delays, left_alone.reason) == ((), Reason.ERROR)
    assert ahead(automatic=False, asked=True).attempts == 10


def test_an_unknown_error_has_few_attempts_unless_its_author_asks_with_a_limit() -> None:
    assert (ahead(UNKNOWN).attempts, ahead(UNKNOWN).reason) == (3, Reason.UNCLASSIFIED)
    asked = ahead(UNKNOWN, asked=True, broad=True, limited=True, max_attempts=5)
    assert asked.attempts == 5


def test_a_list_of_delays_is_foreseen_as_it_stands() -> None:
    found = ahead(delays=(0.0, 30.0, 120.0))

    assert found.delays == ((0.0, 0.0), (30.0, 30.0), (120.0, 120.0))
    assert found.span == (150.0, 150.0)


def test_the_wait_of_another_side_counts() -> None:
    found = ahead(Verdict(kind=Kind.TRANSIENT, rule="r", retry_after=100.0), max_attempts=2)

    assert found.delays == ((100.0, 110.0),)


def test_where_the_age_may_end_it_both_ends_are_told() -> None:
    found = ahead(base=10.0, cap=10.0, floor=1.0, max_attempts=5, max_age=20.0)

    assert found.attempts == 5
    assert (found.reason, found.if_slow) == (Reason.RETRIES_EXHAUSTED, Reason.MAX_AGE)
    assert found.span == (4.0, 20.0)


def test_without_a_limit_the_age_ends_it_and_the_list_is_bounded() -> None:
    few = ahead(delays=(100.0,), max_attempts=math.inf, max_age=250.0)
    many = ahead(delays=(0.0,), max_attempts=math.inf)

    assert (few.attempts, few.reason, few.span) == (3, Reason.MAX_AGE, (200.0, 200.0))
    assert (len(many.delays), many.more, many.reason) == (MOST_ATTEMPTS, True, Reason.MAX_AGE)


def test_no_course_of_chance_leaves_what_was_foreseen() -> None:
    chance = random.Random(7)
    for _ in range(300):
        policy = merged(
            task=RetryPolicy(
                base=chance.uniform(0.1, 60),
                cap=chance.uniform(60, 600),
                floor=chance.uniform(0, 5),
                max_attempts=chance.randint(1, 12),
                max_age=chance.uniform(1, 3000),
            )
        )
        options = {"asked": False, "automatic": True, "broad": False, "author_limit": False}
        found = foresee(TRANSIENT, policy, **options)
        age, attempt = 0.0, 1
        while True:
            said = decide(
                TRANSIENT, attempt=attempt, age=age, policy=policy, delay=None, rng=chance.random, **options
            )
            if said.action is Action.DEAD:
                break
            low, high = found.delays[attempt - 1]
            assert low <= said.delay <= high
            age, attempt = age + said.delay, attempt + 1
        assert said.reason in (found.reason, found.if_slow)
        assert attempt <= found.attempts
        assert found.span[0] - 1e-6 <= age <= found.span[1] + 1e-6
