"""A retry policy bounds every delay and the sum of them, and layers merge so that who knows decides."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardening.retries.policy import DEFAULTS, RetryPolicy, delay_after, merged

quick = settings(deadline=None, database=None)

seconds = st.floats(min_value=0, max_value=1e9)
draws = st.floats(min_value=0, max_value=1, exclude_max=True)
attempts = st.one_of(st.integers(1, 60), st.integers(1, 100_000))
limits = st.one_of(st.integers(1, 10_000), st.just(math.inf))


@st.composite
def layers(draw):
    low, high = sorted((draw(seconds), draw(seconds)))
    values = {
        "delays": st.lists(seconds, min_size=1, max_size=5).map(tuple),
        "base": seconds,
        "floor": st.just(low),
        "cap": st.just(high),
        "jitter": st.booleans(),
        "max_attempts": limits,
        "max_age": st.floats(min_value=1, max_value=1e6),
        "retry_after_cap": seconds,
        "unknown_attempts": limits,
        "automatic": st.booleans(),
    }
    return RetryPolicy(**{name: draw(st.one_of(st.none(), value)) for name, value in values.items()})


def complete(layer) -> Any:
    """The policy of a task alone, whose numbers are all there."""
    return merged(task=layer)


def of(**values):
    return merged(task=RetryPolicy.of(values))


# Delays


@quick
@given(layers(), attempts, draws)
def test_no_delay_is_below_the_floor_or_above_the_cap(layer, attempt, drawn) -> None:
    policy = complete(layer)
    delay = policy.delay(attempt, lambda: drawn)
    if policy.delays is None:
        assert policy.floor <= delay <= policy.cap
    else:
        assert delay in policy.delays


@quick
@given(layers(), attempts, draws)
def test_every_delay_is_within_its_bounds(layer, attempt, drawn) -> None:
    low, high = layer.bounds(attempt)
    assert low <= layer.delay(attempt, lambda: drawn) <= high


def test_the_default_delay_doubles_from_5_s_to_30_m_over_a_floor_of_1_s() -> None:
    policy = merged()
    assert [policy.bounds(n) for n in (1, 2, 3)] == [(1, 5), (1, 10), (1, 20)]
    assert policy.bounds(10) == (1, 1800)
    assert policy.delay(2, lambda: 0.5) == 5.5


def test_without_jitter_the_delay_is_the_longest_one() -> None:
    policy = of(jitter=False)
    assert [policy.delay(n, random.random) for n in (1, 2, 3)] == [5, 10, 20]


@pytest.mark.parametrize("base", [1e-300, 5, 1e300])
def test_the_ten_thousandth_attempt_waits_for_the_cap(base) -> None:
    assert of(base=base, jitter=False, cap=1800, floor=0).delay(10_000, random.random) == 1800


def test_a_list_of_delays_is_taken_as_it_stands_and_its_last_one_repeated() -> None:
    policy = of(delays="0 s, 30 s, 2 m", max_attempts=6)
    assert [policy.delay(n, random.random) for n in range(1, 6)] == [0, 30, 120, 120, 120]


def test_a_list_of_delays_alone_means_one_attempt_more() -> None:
    assert of(delays="0 s, 30 s, 2 m").max_attempts == 4


# Retry-After


@quick
@given(layers(), attempts, seconds, draws)
def test_the_other_sides_wait_is_kept_as_far_as_its_cap(layer, attempt, told, drawn) -> None:
    policy = complete(layer)
    delay = delay_after(policy, attempt, told, lambda: drawn)
    asked = min(told, policy.retry_after_cap)
    assert delay >= asked
    assert delay >= policy.delay(attempt, lambda: drawn)
    assert delay <= max(policy.bounds(attempt)[1], asked + max(1, asked * 0.1))


def test_those_who_were_told_the_same_wait_come_back_apart() -> None:
    policy = of(delays="0 s")
    assert delay_after(policy, 1, 100, lambda: 0.0) == 100
    assert delay_after(policy, 1, 100, lambda: 0.5) == 105
    assert delay_after(policy, 1, 0, lambda: 0.5) == 0.5


# Sums


@quick
@given(layers(), st.integers(0, 2**32))
def test_the_tries_of_a_failing_task_end_within_the_span(layer, seed) -> None:
    policy = complete(layer)
    if policy.max_attempts > 200:
        return
    rng, now = random.Random(seed).random, 0.0
    for attempt in range(1, int(policy.max_attempts)):
        delay = policy.delay(attempt, rng)
        if now + delay > policy.max_age:
            break
        now += delay
    shortest, longest = policy.span()
    assert shortest <= now * 1.000001 + 1e-6
    assert now <= longest * 1.000001 + 1e-6
    assert longest <= policy.max_age


def test_the_default_policy_spans_43_minutes_at_most() -> None:
    assert merged().span() == (9, 5 * (2**9 - 1))


def test_a_policy_without_jitter_has_one_span_and_max_age_cuts_it() -> None:
    assert of(delays="1 m", max_attempts=20).span() == (1140, 1140)
    assert of(delays="1 m", max_attempts=20, max_age="150 s").span() == (120, 120)


def test_a_schedule_has_one_entry_for_each_retry() -> None:
    assert of(base=1, max_attempts=4, floor=0).schedule() == [(0, 1), (0, 2), (0, 4)]
    assert of(max_attempts=1).schedule() == []


def test_a_schedule_without_limit_ends_with_max_age() -> None:
    assert len(of(delays="1 h", max_attempts=math.inf).schedule()) == 24
    assert len(of(delays="0 s", max_attempts=math.inf).schedule()) == 1000


@quick
@given(layers())
def test_every_policy_describes_itself_in_one_short_line(layer) -> None:
    text = merged(task=layer).describe()
    assert "\n" not in text
    assert len(text) < 200


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "10 attempts: 1-5 s, 1-10 s, 1-20 s ... 1 s-21 m 20 s; at most 1 d"),
        ({"delays": "0 s, 30 s, 2 m"}, "4 attempts: 0 s, 30 s, 2 m; at most 1 d"),
        ({"delays": "1 m", "max_attempts": math.inf}, "no limit of attempts: 1 m each; at most 1 d"),
        ({"max_attempts": 1}, "1 attempt: never tried again"),
    ],
)
def test_a_description_says_how_often_and_how_long(values, text) -> None:
    assert of(**values).describe() == text


# Reading


def test_a_policy_is_read_from_a_dict_with_keys_in_any_case() -> None:
    policy = RetryPolicy.of({"BASE": "5 s", "Cap": 1800, "max_age": "1 d", "DELAYS": ["0 s"], "jitter": None})
    assert policy == RetryPolicy(base=5, cap=1800, max_age=86400, delays=(0,))
    assert RetryPolicy.of(policy) is policy


def test_an_unknown_key_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(ValueError, match='max_atempts: unknown key; did you mean "max_attempts"'):
        RetryPolicy.of({"max_atempts": 5})


@pytest.mark.parametrize(
    "values",
    [
        {"max_attempts": 0},
        {"max_attempts": 2.5},
        {"max_attempts": True},
        {"max_attempts": math.nan},
        {"max_attempts": "3"},
        {"unknown_attempts": 0},
        {"max_age": 0},
        {"max_age": math.inf},
        {"base": -1},
        {"jitter": 1},
        {"delays": ()},
        {"cap": 1, "floor": 2},
    ],
)
def test_values_that_make_no_sense_are_refused_however_they_are_given(values) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        RetryPolicy.of(values)
    with pytest.raises(ValueError, match=next(iter(values))):
        RetryPolicy(**values)


def test_every_bad_entry_is_named_and_the_good_ones_are_read() -> None:
    policy, problems = RetryPolicy.read({"base": "x", "cap": 7, "colour": 1})
    assert policy == RetryPolicy(cap=7)
    assert [problem.key for problem in problems] == ["base", "colour"]


# Merging


@quick
@given(layers(), layers(), layers())
def test_what_is_merged_is_complete(rule, task, project) -> None:
    policy = merged(rule=rule, task=task, project=project)
    missing = [name for name in RetryPolicy.__slots__ if name != "delays" and getattr(policy, name) is None]
    assert missing == []


def test_nothing_given_means_the_defaults() -> None:
    assert merged() == DEFAULTS


def test_a_rule_says_how_long_to_wait_and_a_task_how_often() -> None:
    rule, task, project = (
        RetryPolicy(base=n, cap=100 * n, max_attempts=n, max_age=1000 * n, retry_after_cap=n, jitter=n == 2)
        for n in (2, 3, 4)
    )
    policy = merged(rule=rule, task=task, project=project)
    assert (policy.base, policy.cap, policy.retry_after_cap, policy.jitter) == (2, 200, 2, True)
    assert (policy.max_attempts, policy.max_age) == (3, 3000)
    assert merged(rule=rule, project=project).max_attempts == 2
    quiet, eager = RetryPolicy(automatic=False), RetryPolicy(automatic=True)
    assert merged(rule=quiet, task=eager).automatic is True
    assert merged(rule=quiet, project=eager).automatic is False
    assert merged(project=project).base == 4


def test_a_list_of_delays_hides_the_curve_of_lower_layers() -> None:
    policy = merged(rule=RetryPolicy(delays=(7,)), task=RetryPolicy(base=1, max_attempts=5))
    assert policy.bounds(3) == (7, 7)
    assert policy.max_attempts == 5


@pytest.mark.parametrize("curve", [{"base": 2}, {"cap": 90}])
def test_a_curve_hides_the_list_of_delays_of_lower_layers(curve) -> None:
    policy = merged(rule=RetryPolicy(**curve), task=RetryPolicy(delays=(7, 8)))
    assert policy.delays is None
    assert policy.max_attempts == 3  # The work was still to be tried so often.


def test_a_tasks_list_of_delays_limits_its_attempts_over_the_projects_number() -> None:
    policy = merged(task=RetryPolicy(delays=(1, 2)), project=RetryPolicy(max_attempts=50))
    assert policy.max_attempts == 3


def test_where_floor_and_cap_of_two_layers_exclude_each_other_the_upper_layer_holds() -> None:
    short = merged(task=RetryPolicy(cap=5), project=RetryPolicy(floor=60))
    assert short.bounds(9) == (5, 5)
    long = merged(rule=RetryPolicy(floor=7200))
    assert long.bounds(1) == (7200, 7200)
