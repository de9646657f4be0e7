"""Outage mode: failures in a row open it, one probe at a time asks, and any success ends it."""

from __future__ import annotations

import heapq
import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardening.retries import outage
from hardening.retries.outage import Admitted, Event, Outage, Probe, Wait

RULES = Outage()


def fail(document, *, task="t", prober="someone", success_age=None, now=0.0, rules=RULES):
    return outage.failed(document, task=task, prober=prober, success_age=success_age, now=now, rules=rules)


def opened(now=0.0, rules=RULES):
    document = None
    for _ in range(int(rules.failures)):
        document, _ = fail(document, now=now, rules=rules)
    assert outage.is_open(document)
    return document


def waited(document, now: float) -> Wait:
    wait = outage.wait_of(document, now)
    assert wait is not None
    return wait


def probing(prober="p", now=5.0):
    document, answer = outage.admit(opened(), prober=prober, now=now)
    assert isinstance(answer, Probe)
    return document


def test_twenty_failures_in_a_row_open_an_outage() -> None:
    document = None
    for _ in range(19):
        document, event = fail(document)
        assert event is None
        assert not outage.is_open(document)
    document, event = fail(document)
    assert event is Event.OPENED
    assert outage.is_open(document)


def test_a_success_in_between_begins_a_new_run() -> None:
    document = None
    for n in range(100):
        document, event = fail(document, success_age=0.0 if n % 19 == 0 else None, task=f"t{n}")
        assert event is None
    assert outage.view(document).failures == 100 - 5 * 19
    assert outage.tasks_of(document) == tuple(f"t{n}" for n in range(95, 100))


def test_a_success_of_another_reporter_ends_the_run() -> None:
    document, _ = fail(None)
    assert outage.succeeded(document, now=0.0) == (None, None)


def test_the_names_of_the_tasks_that_failed_are_kept_up_to_fifty() -> None:
    document = None
    for n in range(200):
        document, _ = fail(document, task=f"t{n % 120}")
    assert outage.tasks_of(document) == tuple(f"t{n}" for n in range(12))


def test_without_an_outage_everyone_is_admitted() -> None:
    document, _ = fail(None)
    assert outage.admit(None, prober="a", now=0.0) == (None, Admitted())
    assert outage.admit(document, prober="a", now=0.0) == (document, Admitted())
    assert outage.wait_of(document, 0.0) is None


def test_the_first_to_ask_after_the_wait_probes_and_the_others_wait() -> None:
    document, answer = outage.admit(opened(), prober="a", now=4.5)
    assert answer == Wait(0.5, 5.0)
    document, answer = outage.admit(document, prober="a", now=5.0)
    assert answer == Probe(until=65.0)
    document, answer = outage.admit(document, prober="b", now=5.0)
    assert answer == Wait(0.0, 5.0)


def test_those_who_failed_wait_as_long_as_those_who_ask() -> None:
    document = opened()
    assert outage.wait_of(document, 3.0) == Wait(2.0, 5.0)
    assert outage.admit(document, prober="a", now=3.0)[1] == Wait(2.0, 5.0)


def test_a_failed_probe_doubles_the_wait_up_to_the_longest() -> None:
    document, now, waits = opened(), 0.0, []
    for _ in range(6):
        now = outage.view(document).next_probe_at
        document, answer = outage.admit(document, prober="p", now=now)
        assert isinstance(answer, Probe)
        document, event = fail(document, prober="p", now=now)
        assert event is Event.STILL_DOWN
        waits.append(outage.wait_of(document, now))
    assert waits == [Wait(wait, wait) for wait in (10, 20, 40, 60, 60, 60)]


def test_only_the_holder_of_the_probe_lengthens_the_wait() -> None:
    document, event = fail(probing("p"), prober="other", now=6.0)
    assert event is None
    assert outage.view(document).wait == 5.0
    assert outage.view(document).prober == "p"


def test_successes_from_before_do_not_end_an_outage_when_a_failure_reports_them() -> None:
    document, _ = fail(probing("p"), prober="p", success_age=0.0, now=6.0)
    assert outage.is_open(document)


@pytest.mark.parametrize("document", [opened(), probing("p")])
def test_any_success_ends_the_outage(document) -> None:
    after, event = outage.succeeded(document, now=6.0)
    assert event is Event.RECOVERED
    assert outage.admit(after, prober="a", now=6.0)[1] == Admitted()


def test_a_probe_whose_process_died_is_given_to_another_after_its_lease() -> None:
    document = probing("dead", now=5.0)
    document, answer = outage.admit(document, prober="next", now=64.9)
    assert isinstance(answer, Wait)
    document, answer = outage.admit(document, prober="next", now=65.0)
    assert answer == Probe(until=125.0)
    document, event = fail(document, prober="dead", now=66.0)
    assert event is None
    assert outage.view(document).prober == "next"


def test_the_message_of_a_probe_that_comes_again_probes_on_at_once() -> None:
    _, answer = outage.admit(probing("p", now=5.0), prober="p", now=30.0)
    assert answer == Probe(until=90.0)


def test_after_a_probe_that_said_nothing_the_next_may_probe_at_once() -> None:
    document = outage.inconclusive(probing("p"), prober="p", now=7.0)
    document, answer = outage.admit(document, prober="q", now=7.0)
    assert isinstance(answer, Probe)
    assert outage.view(document).wait == 5.0


def test_only_the_holder_gives_the_probe_back() -> None:
    document = probing("p")
    assert outage.inconclusive(document, prober="q", now=7.0) == document
    assert outage.inconclusive(None, prober="q", now=7.0) is None


def test_a_clock_that_was_set_back_holds_nobody_longer_than_a_wait_or_a_lease() -> None:
    document, answer = outage.admit(opened(now=1e6), prober="a", now=0.0)
    assert answer == Wait(5.0, 5.0)
    document, answer = outage.admit(document, prober="a", now=5.0)
    assert isinstance(answer, Probe)
    held, _ = outage.admit(opened(now=1e6), prober="a", now=1e6 + 5)
    held, answer = outage.admit(held, prober="b", now=0.0)
    assert isinstance(answer, Wait)
    assert isinstance(outage.admit(held, prober="b", now=60.0)[1], Probe)


BROKEN = [
    [],
    "x",
    {},
    {**opened(), "v": 2},
    {**opened(), "failures": "many"},
    {**opened(), "tasks": [1]},
    {**opened(), "wait": 0},
    {**opened(), "lease": None},
    {**opened(), "next_probe_at": math.inf},
    {**opened(), "prober": 7},
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_document_that_is_none_of_ours_is_no_outage(broken) -> None:
    assert outage.admit(broken, prober="a", now=0.0) == (None, Admitted())
    assert outage.succeeded(broken, now=0.0) == (None, None)
    assert outage.inconclusive(broken, prober="a", now=0.0) is None
    assert outage.view(fail(broken)[0]).failures == 1


def test_outage_mode_can_be_turned_off() -> None:
    document, rules = None, Outage(failures=math.inf)
    for _ in range(1000):
        document, event = fail(document, rules=rules)
        assert event is None


@pytest.mark.parametrize(
    "values",
    [{"failures": 0}, {"first_wait": 0}, {"probe_lease": math.inf}, {"longest_wait": 4}],
)
def test_rules_that_make_no_sense_are_refused(values) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        Outage(**values)


def test_those_parked_before_a_probe_return_within_one_wait_from_it_whenever_they_asked() -> None:
    for asked_at in (0.0, 1.0, 4.5):
        wait = waited(opened(), asked_at)
        assert asked_at + outage.park_delay(wait, lambda: 0.0) == 5.0
        assert asked_at + outage.park_delay(wait, lambda: 0.5) == 7.5
        assert asked_at + outage.park_delay(wait, lambda: 1.0) == 10.0


def test_beside_a_probe_that_hangs_the_others_ask_less_and_less_often() -> None:
    document = probing("p", now=5.0)
    assert outage.wait_of(document, 5.5) == Wait(0.5, 5.0)
    assert outage.wait_of(document, 8.0) == Wait(3.0, 5.0)
    assert outage.wait_of(document, 40.0) == Wait(5.0, 5.0)


moves = st.lists(
    st.tuples(
        st.sampled_from(["admit", "fail", "succeed", "nothing"]), st.sampled_from("abcd"), st.floats(0, 40)
    ),
    max_size=60,
)


@settings(deadline=None, database=None, max_examples=300)
@given(moves)
def test_two_never_probe_at_one_time_and_waits_only_grow_to_the_longest(moves) -> None:
    rules = Outage(failures=2, first_wait=5, longest_wait=60, probe_lease=30)
    document, now, wait = None, 0.0, 0.0
    holders: dict[str, float] = {}
    for move, who, elapsed in moves:
        now += elapsed
        holders = {name: until for name, until in holders.items() if now < until}
        if move == "admit":
            document, answer = outage.admit(document, prober=who, now=now)
            if isinstance(answer, Probe):
                assert set(holders) <= {who}
                holders[who] = answer.until
            elif isinstance(answer, Wait):
                assert 0 <= answer.seconds <= answer.spread
                assert 5 <= answer.spread <= 60
            else:
                assert not outage.is_open(document)
        elif move == "fail":
            document, _ = fail(document, prober=who, now=now, rules=rules)
            holders.pop(who, None)
        elif move == "nothing":
            document = outage.inconclusive(document, prober=who, now=now)
            holders.pop(who, None)
        else:
            document, _ = outage.succeeded(document, now=now)
            assert not outage.is_open(document)
            holders.clear()
        document = json.loads(json.dumps(document))
        state = outage.view(document)
        if outage.is_open(document):
            assert wait <= state.wait <= 60
            wait = state.wait
        else:
            wait = 0.0


def until_recovery(tasks: int, down_for: float, rng) -> tuple[float, list[float]]:
    """When a probe found the dependency back, and when all parked tasks are due then, the prober's too.

    All tasks have asked at the opening. A probe takes no time.
    """
    document = opened()
    due = [(outage.park_delay(waited(document, 0.0), rng), n) for n in range(tasks)]
    heapq.heapify(due)
    for _ in range(100 * tasks + 1000):
        now, who = heapq.heappop(due)
        document, answer = outage.admit(document, prober=str(who), now=now)
        if isinstance(answer, Probe):
            if now >= down_for:
                assert outage.succeeded(document, now=now) == (None, Event.RECOVERED)
                return now, sorted([now, *(at for at, _ in due)])
            document, _ = fail(document, prober=str(who), now=now)
            answer = waited(document, now)
        assert isinstance(answer, Wait)
        heapq.heappush(due, (now + outage.park_delay(answer, rng), who))
    pytest.fail("nobody probed")


@settings(deadline=None, database=None, max_examples=50)
@given(st.integers(0, 2**32), st.integers(1, 30), st.floats(0, 600))
def test_every_outage_ends_soon_after_the_dependency_is_back(seed, tasks, down_for) -> None:
    """Parked tasks that come back as told find the dependency within two waits, and all within three."""
    found_at, due = until_recovery(tasks, down_for, random.Random(seed).random)
    assert found_at <= max(down_for, 5) + 2 * 60
    assert due[-1] <= max(down_for, 5) + 3 * 60


@settings(deadline=None, database=None, max_examples=25)
@given(st.integers(0, 2**32), st.floats(0, 600))
def test_once_it_is_over_the_parked_come_back_without_a_peak(seed, down_for) -> None:
    """1,000 tasks, in bins of 40 on average: 80 in one would be more than six standard deviations away."""
    _, due = until_recovery(1000, down_for, random.Random(seed).random)
    bins = [0] * 25
    for at in due:
        bins[min(24, int((at - due[0]) / (due[-1] - due[0]) * 25))] += 1
    assert max(bins) <= 2 * 40
