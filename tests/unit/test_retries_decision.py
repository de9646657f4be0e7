"""A failed attempt is tried again only where that can help, only so often, and only so long."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardening.classification.verdict import Kind, Verdict
from hardening.core.reasons import Reason
from hardening.retries.decision import Action, decide
from hardening.retries.policy import RetryPolicy, merged

PERMANENT = Verdict(kind=Kind.PERMANENT, rule="http.status", code="404")
TRANSIENT = Verdict(kind=Kind.TRANSIENT, rule="http.status", code="503")
UNKNOWN = Verdict(kind=Kind.UNKNOWN, rule="unknown")

KEEN = merged(task=RetryPolicy(delays=(10,), max_attempts=5))


def told(seconds, rule="http.status"):
    return Verdict(kind=Kind.TRANSIENT, rule=rule, code="503", retry_after=seconds)


def decided(verdict, attempt=1, **changes):
    given = {
        "age": 0.0,
        "policy": KEEN,
        "asked": False,
        "automatic": True,
        "delay": None,
        "rng": lambda: 0.0,
    }
    return decide(verdict, attempt=attempt, **{**given, **changes})


def attempts_of(verdict, **changes):
    """How many attempts there are in all, and the reason of the letter."""
    for attempt in range(1, 100):
        decision = decided(verdict, attempt, **changes)
        if decision.action is Action.DEAD:
            return attempt, decision.reason
    return math.inf, None


# Permanent


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("automatic", [True, False])
def test_a_permanent_error_is_never_tried_again_whoever_asks(asked, automatic) -> None:
    ending = attempts_of(PERMANENT, asked=asked, automatic=automatic, author_limit=asked)
    assert ending == (1, Reason.PERMANENT)


def test_a_time_limit_has_a_reason_of_its_own() -> None:
    verdict = Verdict(kind=Kind.PERMANENT, rule="celery.time_limit")
    assert decided(verdict).reason is Reason.TIME_LIMIT


# Transient


def test_a_transient_error_is_tried_up_to_the_limit() -> None:
    assert attempts_of(TRANSIENT) == (5, Reason.RETRIES_EXHAUSTED)
    assert attempts_of(TRANSIENT, asked=True, broad=True) == (5, Reason.RETRIES_EXHAUSTED)


def test_a_task_that_is_not_retried_on_its_own_ends_as_an_error() -> None:
    assert attempts_of(TRANSIENT, automatic=False) == (1, Reason.ERROR)
    assert attempts_of(UNKNOWN, automatic=False) == (1, Reason.ERROR)
    assert attempts_of(TRANSIENT, automatic=False, asked=True) == (5, Reason.RETRIES_EXHAUSTED)


def test_a_policy_of_one_attempt_ends_as_an_error() -> None:
    once = merged(task=RetryPolicy(max_attempts=1))
    assert attempts_of(TRANSIENT, policy=once) == (1, Reason.ERROR)
    assert attempts_of(UNKNOWN, policy=once) == (1, Reason.ERROR)


def test_a_limit_that_was_lowered_since_ends_a_late_attempt_as_used_up() -> None:
    once = merged(task=RetryPolicy(max_attempts=1))
    assert decided(TRANSIENT, 4, policy=once).reason is Reason.RETRIES_EXHAUSTED


def test_no_try_comes_after_max_age() -> None:
    policy = merged(task=RetryPolicy(delays=(10,), max_attempts=math.inf, max_age=60))
    assert decided(TRANSIENT, 3, policy=policy, age=50).action is Action.RETRY
    late = decided(TRANSIENT, 3, policy=policy, age=50.5)
    assert (late.action, late.reason, late.delay) == (Action.DEAD, Reason.MAX_AGE, 0)


# Unknown


def test_an_error_that_no_rule_knows_is_tried_a_few_times() -> None:
    assert attempts_of(UNKNOWN) == (3, Reason.UNCLASSIFIED)


def test_an_unknown_error_is_not_tried_more_often_than_a_known_one() -> None:
    assert attempts_of(UNKNOWN, policy=merged(task=RetryPolicy(max_attempts=2))) == (2, Reason.UNCLASSIFIED)


def test_a_broad_autoretry_without_a_limit_does_not_make_an_unknown_error_a_known_one() -> None:
    assert attempts_of(UNKNOWN, asked=True, broad=True) == (3, Reason.UNCLASSIFIED)


def test_the_authors_own_limit_holds_for_an_unknown_error_that_he_asked_for() -> None:
    assert attempts_of(UNKNOWN, asked=True, broad=True, author_limit=True) == (5, Reason.UNCLASSIFIED)
    assert attempts_of(UNKNOWN, asked=True, author_limit=True) == (5, Reason.RETRIES_EXHAUSTED)


def test_a_retry_by_hand_of_an_unknown_error_has_the_policys_limit() -> None:
    assert attempts_of(UNKNOWN, asked=True) == (5, Reason.RETRIES_EXHAUSTED)


def test_the_authors_limit_does_not_hold_where_he_did_not_ask() -> None:
    assert attempts_of(UNKNOWN, author_limit=True) == (3, Reason.UNCLASSIFIED)


# Delays


def test_the_delay_is_the_policys() -> None:
    assert decided(TRANSIENT, policy=merged(), rng=lambda: 0.5).delay == 3


def test_the_authors_countdown_is_taken_but_never_earlier_than_the_other_side_asked() -> None:
    assert decided(TRANSIENT, delay=2).delay == 2
    assert decided(told(30), delay=2).delay == 30
    assert decided(told(30), delay=45).delay == 45
    assert decided(TRANSIENT, delay=-5).delay == 0


def test_the_other_sides_wait_is_capped_and_never_shortens_the_policys() -> None:
    assert decided(told(30)).delay == 30
    assert decided(told(3)).delay == 10
    assert decided(told(1e6)).delay == 1800
    assert decided(told(1e6), delay=5).delay == 1800


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -1])
def test_a_wait_that_is_none_is_ignored(nonsense) -> None:
    assert decided(told(nonsense)).delay == 10


def test_a_task_that_knows_the_time_itself_waits_for_it_and_no_cap_shortens_it() -> None:
    assert decided(told(36_000, "raised")).delay == 36_000
    assert decided(told(1, "raised")).delay == 1
    assert decided(told(36_000, "raised"), rng=lambda: 0.5).delay == 36_030


def test_the_spread_of_a_named_time_gives_way_to_max_age() -> None:
    decision = decided(told(80_000, "raised"), age=6_390, rng=lambda: 0.9)
    assert (decision.action, decision.delay) == (Action.RETRY, 80_010)


def test_a_wait_beyond_max_age_is_a_letter_that_says_both_numbers() -> None:
    decision = decided(told(2 * 86400, "raised"))
    assert decision.reason is Reason.MAX_AGE
    assert decision.text == (
        "transient by raised 503: attempt 1 of 5 failed at an age of 0 s; "
        "the next, in 2 d, would come after max_age 1 d"
    )


def test_a_clock_that_lags_does_not_lengthen_max_age() -> None:
    assert decided(told(86_401, "raised"), age=-100).reason is Reason.MAX_AGE


verdicts = st.builds(
    Verdict,
    kind=st.sampled_from(Kind),
    rule=st.sampled_from(["raised", "http.status", "unknown", "celery.time_limit"]),
    retry_after=st.none() | st.floats(),
)


@settings(deadline=None, database=None, max_examples=300)
@given(
    verdicts,
    st.integers(1, 10_000),
    st.floats(-1e6, 1e6),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.none() | st.floats(),
    st.floats(0, 1, exclude_max=True),
)
def test_every_decision_is_bounded_and_gives_a_reason_or_a_delay(
    verdict, attempt, age, asked, automatic, broad, limited, delay, drawn
) -> None:
    decision = decide(
        verdict,
        attempt=attempt,
        age=age,
        policy=merged(),
        asked=asked,
        automatic=automatic,
        broad=broad,
        author_limit=limited,
        delay=delay,
        rng=lambda: drawn,
    )
    assert decision.text
    if decision.action is Action.DEAD:
        assert isinstance(decision.reason, Reason)
        assert decision.delay == 0
    else:
        assert decision.reason is None
        assert verdict.kind is not Kind.PERMANENT
        assert attempt < 10
        assert decision.delay >= 0
        assert age + decision.delay <= 86400


# Texts


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        (decided(TRANSIENT, 2), "transient by http.status 503: attempt 2 of 5 failed, again in 10 s"),
        (decided(TRANSIENT, 5), "transient by http.status 503: attempt 5 of 5 failed, no other follows"),
        (decided(PERMANENT), "permanent by http.status 404: attempt 1 failed, another cannot succeed"),
        (decided(UNKNOWN), "unknown: attempt 1 of 3 failed, again in 10 s"),
        (
            decided(UNKNOWN, automatic=False),
            "unknown: attempt 1 failed, the task is not retried on its own",
        ),
        (
            decided(Verdict(kind=Kind.TRANSIENT, rule="python.connection", via="ConnectionError")),
            "transient by python.connection of ConnectionError: attempt 1 of 5 failed, again in 10 s",
        ),
        (
            decided(TRANSIENT, 7, policy=merged(task=RetryPolicy(delays=(1,), max_attempts=math.inf))),
            "transient by http.status 503: attempt 7 failed, again in 1 s",
        ),
    ],
)
def test_the_text_says_what_was_judged_by_what_and_what_follows(decision, text) -> None:
    assert decision.text == text
