"""The checker finds what is wrong with models whose faults are known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.model.checker import Move, TooManyStates, explore


def _stairs(height: int) -> Iterator[Move[int]]:
    """Up one or two steps to 9; from 4 one may fall to 20, and from there go nowhere."""
    if height < 8:
        yield Move("two steps", height + 2)
    if height < 9:
        yield Move("a step", height + 1)
    if height == 4:
        yield Move("falls", 20, True)


def test_all_states_are_looked_at() -> None:
    report = explore(0, _stairs, invariants={"small": lambda height: height <= 20})

    assert report.states == 11
    assert report.labels == {"two steps", "a step", "falls"}
    assert report.counterexample is None


def test_a_counterexample_is_as_short_as_can_be() -> None:
    found = explore(0, _stairs, invariants={"below six": lambda height: height < 6}).counterexample

    assert found is not None
    assert found.claim == "below six"
    assert found.labels == ["two steps"] * 3


def test_a_counterexample_reads_step_by_step() -> None:
    found = explore(0, _stairs, invariants={"below two": lambda height: height < 2}).counterexample

    assert str(found) == "below two does not hold:\n      0\n   1. two steps\n      2"


def test_a_state_from_which_the_goal_cannot_be_reached_is_found() -> None:
    found = explore(0, _stairs, invariants={}, goal=("the top", lambda height: height == 9)).counterexample

    assert found is not None
    assert found.labels == ["two steps", "two steps", "falls"]


def test_a_failure_does_not_count_as_a_way_to_the_goal() -> None:
    def moves(state: str) -> Iterator[Move[str]]:
        if state == "start":
            yield Move("fails", "end", True)

    assert explore("start", moves, invariants={}, goal=("end", lambda state: state == "end")).counterexample


def test_states_that_are_alike_are_looked_at_once_and_the_trace_is_of_real_ones() -> None:
    def moves(pair: tuple[int, int]) -> Iterator[Move[tuple[int, int]]]:
        left, right = pair
        if left < 2:
            yield Move("left", (left + 1, right))
        if right < 2:
            yield Move("right", (left, right + 1))

    def smaller(pair: tuple[int, int]) -> tuple[int, int]:
        return min(pair, pair[::-1])

    report = explore((0, 0), moves, invariants={"not full": lambda pair: pair != (2, 2)}, alike=smaller)

    assert report.states == 6
    assert report.counterexample is not None
    assert report.counterexample.moves[-1][1] == (2, 2)
    assert sorted(report.counterexample.labels) == ["left", "left", "right", "right"]


def test_a_model_that_is_too_large_is_no_success() -> None:
    with pytest.raises(TooManyStates):
        explore(0, lambda n: [Move("more", n + 1)], invariants={}, most_states=100)
