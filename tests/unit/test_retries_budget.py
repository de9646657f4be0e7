"""A retry budget delays what is over it, so that retries come at a bounded rate whatever happens."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardening.retries.budget import Budget, view, withdraw

BUDGET = Budget(share=0.2, per_second=10.0)
CAPACITY = 100.0

quick = settings(deadline=None, database=None)


def spend(document, times, *, now=0.0, starts=0, budget=BUDGET):
    """The waits of so many withdrawals at one time."""
    waits = []
    for _ in range(times):
        document, wait = withdraw(document, starts=starts, now=now, budget=budget)
        waits.append(wait)
    return document, waits


def test_a_burst_within_the_capacity_is_not_delayed() -> None:
    _, waits = spend(None, 100)
    assert set(waits) == {0.0}


def test_retries_over_budget_are_spread_at_the_constant_rate() -> None:
    document, _ = spend(None, 100)
    _, waits = spend(document, 5)
    assert waits == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


def test_each_start_pays_its_share_of_a_retry() -> None:
    document, _ = spend(None, 100)
    _, waits = spend(document, 50, starts=5)
    assert set(waits) == {0.0}


def test_time_pays_off_debt() -> None:
    document, _ = spend(None, 110)
    _, (wait,) = spend(document, 1, now=1.1)
    assert wait == 0.0


def test_a_quiet_hour_saves_up_no_more_than_the_capacity() -> None:
    document, _ = spend(None, 100)
    assert view(document, 3600.0, BUDGET).tokens == pytest.approx(CAPACITY)


def test_a_busy_task_may_save_up_its_share_of_the_last_seconds() -> None:
    document, _ = spend(None, 1, starts=1000)
    assert view(document, 0.0, BUDGET).capacity == 300
    assert view(document, 100.0, BUDGET).capacity == pytest.approx(CAPACITY, abs=0.1)


def test_a_clock_that_goes_back_and_forth_pays_nothing_twice() -> None:
    document, _ = spend(None, 100, now=1000.0)
    for now in (995.0, 1000.0) * 10:
        document, _ = spend(document, 0, now=now)
        document, wait = withdraw(document, starts=0, now=now, budget=BUDGET)
        assert wait > 0


def test_a_clock_that_was_set_back_is_followed() -> None:
    document, _ = spend(None, 100, now=1e9)
    document, _ = spend(document, 1, now=0.0)
    assert view(document, 1.0, BUDGET).tokens == pytest.approx(9.0)


@pytest.mark.parametrize(
    "broken",
    [{}, [], "x", {"tokens": "1", "recent": 0, "at": 0}, {"tokens": math.nan, "recent": 0, "at": 0}],
)
def test_an_unreadable_document_is_a_full_bucket(broken) -> None:
    document, wait = withdraw(broken, starts=0, now=5.0, budget=BUDGET)
    assert wait == 0.0
    assert view(document, 5.0, BUDGET).tokens == CAPACITY - 1


def test_looking_changes_nothing_and_tells_the_wait_of_the_next_retry() -> None:
    document, _ = spend(None, 105)
    before = json.dumps(document)
    assert view(document, 0.0, BUDGET).wait == pytest.approx(0.6)
    assert json.dumps(document) == before


@pytest.mark.parametrize(
    "values", [{"share": -0.1}, {"share": 1.1}, {"per_second": 0}, {"per_second": math.inf}, {"window": 0}]
)
def test_a_budget_that_bounds_nothing_or_stops_everything_is_refused(values) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        Budget(**values)


def test_no_retry_is_delayed_for_longer_than_the_longest_wait_and_the_debt_ends_with_it() -> None:
    budget = Budget(share=0, per_second=1, longest_wait=60)
    document, waits = None, []
    for _ in range(1000):
        document, wait = withdraw(document, starts=1, now=0.0, budget=budget)
        waits.append(wait)

    assert max(waits) == 60
    assert withdraw(document, starts=1, now=61.0, budget=budget)[1] <= 1


steps = st.lists(st.tuples(st.floats(-20, 20), st.integers(0, 200), st.integers(1, 60)), max_size=30)


@quick
@given(steps, st.floats(0, 1), st.floats(0.1, 50))
def test_never_more_retries_are_due_than_starts_time_and_capacity_pay_for(steps, share, rate) -> None:
    budget = Budget(share=share, per_second=rate, longest_wait=1e9)
    document, now, forward, starts = None, 0.0, 0.0, 0
    due, paid = [], []
    for elapsed, started, retries in steps:
        now, forward, starts = now + elapsed, forward + max(0.0, elapsed), starts + started
        for n in range(retries):
            document, wait = withdraw(document, starts=0 if n else started, now=now, budget=budget)
            document = json.loads(json.dumps(document))
            assert 0 <= wait < math.inf
            # Time as a clock that only goes forward would count it.
            due.append(forward + wait)
            paid.append((forward, starts))
    for at in due:
        count = sum(other <= at for other in due)
        started_by = max(started for time, started in paid if time <= at)
        assert count <= share * started_by + rate * at + rate * budget.window + 1e-6 * count + 1e-6
