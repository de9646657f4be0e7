"""The demo's words for groups and for the outcomes of a replay."""

from __future__ import annotations

from typing import Any

import pytest

from sample_project.demo.outcomes import Group, Outcomes, groups_table, outcomes_lines


def outcomes(**known: Any) -> Outcomes:
    """Of an operation on ten letters that is closed, unless it is said otherwise."""
    return Outcomes(**{"name": "0988", "state": "closed", "pace": "ramp 1, 2", "total": 10, **known})


def test_what_was_left_alone_is_known_and_was_not_sent():
    found = outcomes(succeeded=4, came_back=2, lost=1, running=1, not_sent=2)

    assert (found.sent, found.known) == (8, 9)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"succeeded": 10}, True),
        ({"succeeded": 9, "came_back": 1}, False),
        ({"succeeded": 9, "not_sent": 1}, False),
        ({"succeeded": 10, "state": "settling"}, False),
    ],
)
def test_all_succeeded_only_if_the_operation_knows_it_of_each(known, expected):
    assert outcomes(**known).all_succeeded is expected


def test_an_operation_says_its_dry_run_its_outcomes_and_why_it_paused():
    lines = outcomes_lines(
        outcomes(state="paused", verdicts={"no_consumer": 1, "fits": 9}, came_back=3, paused="3 of 9")
    ).splitlines()

    assert lines[0] == "operation 0988: paused, ramp 1, 2"
    assert lines[1].split(maxsplit=2)[2] == "fits 9, no_consumer 1"
    assert "came back 3" in lines[2]
    assert lines[3].endswith("3 of 9")


def test_a_group_is_one_line_however_long_its_title():
    group = Group(
        fingerprint="1-a",
        title="x\ny" * 50,
        task="charge",
        reason="permanent",
        letters=3,
        open=0,
        state="resolved",
    )

    [line] = groups_table([group]).splitlines()[2:]

    assert line.split()[-5:] == ["charge", "permanent", "3", ".", "resolved"]
    assert "..." in line
