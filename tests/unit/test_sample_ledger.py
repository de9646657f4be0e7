"""The ledger of the demo: what it counts as what."""

from __future__ import annotations

import pytest

from sample_project.demo.ledger import Fate, Letter, LetterState, Row, count, render
from sample_project.effects import SUCCEEDED, Effect

STARTED = "started"


def effect(outcome: str, *, key: str = "a", attempt: int = 0, replay: int = 0, pid: int = 1) -> Effect:
    return Effect(key=key, kind="task", outcome=outcome, attempt=attempt, replay=replay, pid=pid)


def letter(state: LetterState, *, key: str = "a", reason: str = "error") -> Letter:
    return Letter(id=f"{key}-{state}", key=key, reason=reason, state=state)


def row_of(effects=(), letters=(), on_broker=()) -> Row:
    return count({"a": "job"}, effects, letters, on_broker).total


OPEN, REPLAYING, REPLAYED, CANCELLED = LetterState
RUN = (effect(STARTED), effect(SUCCEEDED))


@pytest.mark.parametrize(
    ("effects", "letters", "on_broker", "fate"),
    [
        pytest.param(RUN, (), (), Fate.SUCCEEDED, id="a run that came to its end"),
        pytest.param(RUN, (), ("a",), Fate.SUCCEEDED, id="a run that came to its end, not acknowledged yet"),
        pytest.param((), (letter(OPEN),), (), Fate.DEAD, id="an open letter"),
        pytest.param(RUN, (letter(OPEN),), (), Fate.DEAD, id="an open letter outweighs a success"),
        pytest.param(RUN, (letter(REPLAYED),), (), Fate.SUCCEEDED, id="a replayed letter and a success"),
        pytest.param((), (letter(CANCELLED),), (), Fate.CANCELLED, id="a letter given up on purpose"),
        pytest.param((), (), ("a",), Fate.PENDING, id="the broker has it"),
        pytest.param((), (letter(REPLAYED),), ("a",), Fate.PENDING, id="replayed, and the broker has it"),
        pytest.param((), (letter(REPLAYING),), (), Fate.PENDING, id="claimed by a replay"),
        pytest.param((), (), (), Fate.LOST, id="nobody has it"),
        pytest.param((effect(STARTED),), (), (), Fate.LOST, id="started, and nobody has it"),
        pytest.param((), (letter(REPLAYED),), (), Fate.LOST, id="replayed, and nobody has it"),
    ],
)
def test_each_job_has_exactly_one_fate(effects, letters, on_broker, fate):
    row = row_of(effects, letters, on_broker)

    assert row.fates == {fate: 1}


def test_a_job_with_several_letters_is_dead_once_for_its_newest_reason():
    letters = [
        letter(REPLAYED, reason="permanent"),
        letter(OPEN, reason="error"),
        letter(OPEN, reason="time_limit"),
    ]

    row = row_of(letters=letters)

    assert (row.of(Fate.DEAD), row.dead_by_reason) == (1, {"time_limit": 1})


def test_a_retry_is_not_a_recovery():
    row = row_of(
        [effect(STARTED), effect("raised Retry"), effect(STARTED, attempt=1), effect(SUCCEEDED, attempt=1)]
    )

    assert (row.retried, row.recovered, row.repeated) == (1, 0, 0)


def test_a_replay_is_neither_a_retry_nor_a_recovery():
    row = row_of(
        [effect(STARTED), effect("raised Permanent"), effect(STARTED, replay=1), effect(SUCCEEDED, replay=1)]
    )

    assert (row.retried, row.recovered, row.repeated) == (0, 0, 0)


def test_a_run_cut_off_without_a_word_and_started_again_is_a_recovery():
    row = row_of([effect(STARTED, pid=1), effect(STARTED, pid=2), effect(SUCCEEDED, pid=2)])

    assert (row.retried, row.recovered, row.repeated) == (0, 1, 0)


def test_two_runs_that_both_came_to_their_end_are_a_repetition_and_no_recovery():
    row = row_of([*RUN, *RUN])

    assert (row.of(Fate.SUCCEEDED), row.recovered, row.repeated) == (1, 0, 1)


def test_rows_come_in_the_order_of_the_kinds_and_add_up():
    published = {"a": "second", "b": "first", "c": "second"}

    ledger = count(
        published, RUN, [letter(OPEN, key="b")], {"c"}, kinds=("first", "second", "never published")
    )

    assert [(row.kind, row.published) for row in ledger.rows] == [("first", 1), ("second", 2)]
    assert ledger.line == "ledger: published=3 succeeded=1 dead=1 cancelled=0 pending=1 lost=0"


@pytest.mark.parametrize(
    ("published", "on_broker", "balances"),
    [({"a": "job"}, (), True), ({"b": "job"}, (), False), ({"b": "job"}, "b", False)],
)
def test_it_balances_only_when_nothing_is_lost_or_pending_and_nothing_strange_was_at_work(
    published, on_broker, balances
):
    assert count(published, RUN, (), on_broker).balances is balances


def test_work_under_a_key_that_was_never_published_spoils_the_balance_and_is_named():
    ledger = count({"a": "job"}, [*RUN, effect(SUCCEEDED, key="stranger")], (), ())

    assert not ledger.balances
    assert "stranger" in render(ledger)


def test_the_table_has_a_line_for_each_kind_its_total_and_the_reasons():
    ledger = count({"a": "good", "b": "bad"}, RUN, [letter(OPEN, key="b", reason="permanent")], ())

    lines = render(ledger).splitlines()

    assert lines[0].split()[:3] == ["job", "published", "succeeded"]
    assert lines[2].split() == ["good", "1", "1", ".", ".", ".", ".", ".", ".", "."]
    assert lines[3].split() == ["bad", "1", ".", "1", ".", ".", ".", ".", ".", "."]
    assert lines[5].split()[:4] == ["all", "2", "1", "1"]
    assert lines[-1] == "dead by reason: permanent 1"
