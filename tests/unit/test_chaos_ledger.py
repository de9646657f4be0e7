"""The ledger of a chaos run finds what is lost and what ran twice, and names the fault that hit it."""

from __future__ import annotations

import pytest

from hardening.chaos.facts import Hit, Letter, Mark, Published
from hardening.chaos.ledger import Fate, Ledger, draw_up


def published(key: str, **facts) -> Published:
    return Published(key=key, kind="quick", **{"confirmed": True, **facts})


def ran(key: str, at: float = 1.0, *, pid: int = 11, parent: int = 1, seconds: float = 1.0) -> list[Mark]:
    return [
        Mark(what="start", key=key, at=at, pid=pid, parent=parent),
        Mark(what="end", key=key, at=at + seconds, pid=pid, parent=parent),
    ]


def only_fate(ledger: Ledger) -> Fate:
    [fate] = ledger.fates.values()
    return fate


def test_each_fate_is_counted_once_and_the_sum_is_right() -> None:
    ledger = draw_up(
        [published(key) for key in "abcd"],
        marks=ran("a"),
        letters=[Letter(key="b", reason="permanent")],
        states={"c": "REVOKED"},
        held=["d"],
    )

    assert ledger.line(5) == (
        "ledger: published=4 succeeded=1 dead=1 cancelled=1 pending=1 lost=0 duplicates=0 seed=5"
    )
    assert not ledger.balances


def test_a_planted_loss_is_found() -> None:
    ledger = draw_up([published("a"), published("b")], marks=ran("a"))

    assert ledger.fates["b"] is Fate.LOST
    assert not ledger.balances
    assert "lost=1" in ledger.line(1)


def test_a_body_that_began_and_never_ended_is_lost() -> None:
    ledger = draw_up([published("a")], marks=ran("a")[:1])

    assert only_fate(ledger) is Fate.LOST


def test_everything_settled_balances() -> None:
    assert draw_up([published("a")], marks=ran("a"), states={"a": "SUCCESS"}).balances


def test_an_open_letter_goes_before_a_success_and_is_reported() -> None:
    ledger = draw_up([published("a")], marks=ran("a"), letters=[Letter(key="a", reason="poison")])

    assert only_fate(ledger) is Fate.DEAD
    assert ledger.both == ("a",)
    assert ledger.reasons == {"poison": 1}


def test_a_message_left_of_a_settled_task_does_not_balance() -> None:
    ledger = draw_up([published("a")], marks=ran("a"), held=["a", ""])

    assert ledger.left == 2
    assert not ledger.balances


def test_what_nobody_published_does_not_balance() -> None:
    ledger = draw_up([], marks=ran("a"))

    assert ledger.strangers == ("a",)
    assert not ledger.balances


def test_a_publish_that_nobody_confirmed_or_saw_was_not_accepted() -> None:
    ledger = draw_up([published("a", confirmed=False), published("b", confirmed=False)], marks=ran("b"))

    assert ledger.not_accepted == ("a",)
    assert (ledger.published, ledger.of(Fate.SUCCEEDED)) == (1, 1)


def test_the_next_step_of_a_chain_is_owed_from_the_success_before_it() -> None:
    steps = [published("a"), published("b", confirmed=False, after=("a",))]

    assert draw_up(steps, marks=ran("a")).fates == {"a": Fate.SUCCEEDED, "b": Fate.LOST}
    assert draw_up(steps, marks=[], letters=[Letter(key="a", reason="permanent")]).fates == {"a": Fate.DEAD}


def test_the_body_of_a_chord_is_owed_when_all_before_it_succeeded() -> None:
    parts = [published("a"), published("b"), published("c", confirmed=False, after=("a", "b"))]

    assert draw_up(parts, marks=[*ran("a"), *ran("b")]).fates["c"] is Fate.LOST
    dead = draw_up(parts, marks=ran("a"), letters=[Letter(key="b", reason="poison")])
    assert "c" not in dead.fates
    assert dead.balances


def test_a_recorded_failure_is_a_dead_letter_only_for_plain_celery() -> None:
    states = {"a": "FAILURE"}

    assert only_fate(draw_up([published("a")], marks=[], states=states)) is Fate.LOST
    assert only_fate(draw_up([published("a")], marks=[], states=states, failures_are_dead=True)) is Fate.DEAD


def test_only_a_recorded_revoke_is_a_cancellation() -> None:
    states = {"a": "REVOKED"}

    assert only_fate(draw_up([published("a")], marks=[], states=states)) is Fate.CANCELLED
    assert only_fate(draw_up([published("a")], marks=ran("a"), states=states)) is Fate.SUCCEEDED
    assert only_fate(draw_up([published("a")], marks=[])) is Fate.LOST


def test_results_that_say_something_else_are_named() -> None:
    ledger = draw_up([published("a"), published("b")], marks=[*ran("a"), *ran("b")], states={"a": "SUCCESS"})

    assert ledger.unanswered == ("b",)
    assert ledger.balances


@pytest.mark.parametrize(
    ("hit", "cause"),
    [
        (Hit(name="kill_child", at=2.1, pids=frozenset({11})), "kill_child"),
        (Hit(name="kill_worker", at=2.1, pids=frozenset({1, 11, 12})), "kill_worker"),
        (Hit(name="worker ended (-9)", at=2.1, pids=frozenset({1})), "worker ended (-9)"),
        (Hit(name="broker", at=1.5, until=3.0), "broker"),
        (Hit(name="stop", at=0.1, until=3.0, pids=frozenset({11})), "stop"),
        (Hit(name="kill_child", at=2.1, pids=frozenset({99})), "unknown"),
        (Hit(name="kill_child", at=9.0, pids=frozenset({11})), "unknown"),
        (Hit(name="kill_child", at=0.1, pids=frozenset({11})), "unknown"),
        (Hit(name="cut", at=0.4), "cut (while it waited in its worker)"),
    ],
)
def test_a_planted_duplicate_is_found_with_the_fault_that_hit_it(hit: Hit, cause: str) -> None:
    ledger = draw_up([published("a")], marks=[*ran("a", 1.0), *ran("a", 5.0, pid=22, parent=2)], hits=[hit])

    [duplicate] = ledger.duplicates
    assert (duplicate.key, duplicate.cause) == ("a", cause)
    assert ledger.balances, "at least once is the promise"


def test_of_several_faults_the_first_one_that_reached_the_run_is_the_cause() -> None:
    hits = [Hit(name="kill_worker", at=2.0, pids=frozenset({11})), Hit(name="cut", at=4.0)]

    [duplicate] = draw_up(
        [published("a")], marks=[*ran("a", 1.0), *ran("a", 5.0, pid=22)], hits=hits
    ).duplicates

    assert duplicate.cause == "kill_worker"


def test_a_repeated_publish_explains_a_second_run() -> None:
    [duplicate] = draw_up(
        [published("a", tries=2)], marks=[*ran("a", 1.0), *ran("a", 5.0, pid=22)]
    ).duplicates

    assert duplicate.cause == "published again"


def test_a_fault_during_its_publish_explains_a_second_run() -> None:
    """The client publishes again by itself, and says nothing."""
    [duplicate] = draw_up(
        [published("a", span=(0.1, 0.4))],
        marks=[*ran("a", 5.0), *ran("a", 5.1, pid=22)],
        hits=[Hit(name="cut", at=0.2)],
    ).duplicates

    assert duplicate.cause == "cut (during its publish)"


def test_a_fault_on_an_earlier_attempt_explains_two_lines_of_retries() -> None:
    failed = Mark(what="start", key="a", at=0.5, pid=77)
    marks = [failed, *ran("a", 20.0), *ran("a", 22.0, pid=22)]
    hits = [Hit(name="kill_child", at=0.6, pids=frozenset({77}))]

    [duplicate] = draw_up([published("a")], marks=marks, hits=hits).duplicates

    assert duplicate.cause == "kill_child (on an earlier attempt)"


def test_three_runs_are_two_duplicates() -> None:
    marks = [*ran("a", 1.0), *ran("a", 5.0, pid=22), *ran("a", 9.0, pid=33)]

    assert len(draw_up([published("a")], marks=marks).duplicates) == 2


def test_a_retried_task_ran_once() -> None:
    marks = [Mark(what="start", key="a", at=0.5, pid=11), *ran("a", 1.0)]

    assert not draw_up([published("a")], marks=marks).duplicates
