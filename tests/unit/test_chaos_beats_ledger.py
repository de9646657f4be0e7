"""The account of the Beats' kit finds what is missed, doubled and stray, and names it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.beats.ledger import Received, Row, account, due_times, percentile

MESSAGES = [
    Received(schedule="a", due_ms=due, id=f"a{due}", pid=1, at=due / 1000) for due in (1000, 2000, 3000)
]
ROWS = [
    Row(schedule="a", due_ms=due, state="sent", why="", first_ms=due, outcome="succeeded")
    for due in (1000, 2000, 3000)
]
RUNS = ["a1000", "a2000", "a3000"]
SKIPPED = Row(schedule="a", due_ms=3000, state="skipped", why="later", first_ms=2000)


def numbers(messages=MESSAGES, runs=RUNS, rows=ROWS, **more):
    found = account({"a": due_times(0, 1000, 3999)}, messages, runs, rows, **more)
    assert bool(found.problems) == bool(found.double or found.missed or found.stray)
    return {
        name: value
        for name in ("sent", "skipped", "doubled_messages", "not_run", "double", "missed", "stray")
        if (value := getattr(found, name))
    }


def test_all_sent_and_run_once_is_in_order():
    assert numbers() == {"sent": 3}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"messages": MESSAGES[:2]}, {"sent": 2, "missed": 1}),
        ({"rows": ROWS[:2]}, {"sent": 3, "missed": 1}),
        ({"messages": MESSAGES[:1], "rows": [ROWS[0], SKIPPED]}, {"sent": 1, "skipped": 2}),
        ({"messages": MESSAGES[:1], "rows": [ROWS[0], replace(SKIPPED, why="")]}, {"sent": 1, "missed": 2}),
        ({"messages": [*MESSAGES, MESSAGES[0]]}, {"sent": 3, "doubled_messages": 1}),
        ({"runs": [*RUNS, "a1000"]}, {"sent": 3, "double": 1}),
        (
            {"messages": [*MESSAGES, replace(MESSAGES[0], id="other")]},
            {"sent": 3, "doubled_messages": 1, "double": 1},
        ),
        ({"messages": [*MESSAGES, replace(MESSAGES[0], due_ms=1500)]}, {"sent": 3, "stray": 1}),
        ({"runs": RUNS[:2]}, {"sent": 3, "not_run": 1, "missed": 1}),
        ({"runs": RUNS[:2], "letters": {"a3000"}}, {"sent": 3, "not_run": 1}),
        (
            {"runs": RUNS[:2], "rows": [*ROWS[:2], replace(ROWS[2], outcome="cancelled")]},
            {"sent": 3, "not_run": 1},
        ),
        (
            {"runs": RUNS[:2], "letters": {"a3000"}, "must_run": frozenset("a")},
            {"sent": 3, "not_run": 1, "missed": 1},
        ),
    ],
    ids=[
        "no message",
        "no row",
        "skipped with a reason",
        "skipped without one",
        "a message twice",
        "a run twice",
        "two ids",
        "of no due time",
        "never run",
        "a dead letter",
        "recorded as expired",
        "one that must run",
    ],
)
def test_what_is_wrong_is_counted(change, expected):
    assert numbers(**change) == expected


def test_percentiles_are_of_the_nearest_rank():
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([], 0.5) is None
