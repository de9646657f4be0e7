"""How fast operations send, and when they pause by themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq.operations.pace import (
    LEAST_JUDGED,
    Judged,
    Look,
    Pace,
    Ramp,
    Rate,
    Share,
    Unlimited,
    pace_of,
    parse_pace,
    pause_for,
    ramp_turn,
    share_rate,
)
from dlq.operations.states import (
    ENDED,
    ITEM_ENDS,
    OPERATION_TRANSITIONS,
    ItemState,
    OperationState,
    PausedBecause,
    sources_of_operation,
)

steps = st.lists(st.integers(1, 500), min_size=1, max_size=8).map(lambda found: tuple(sorted(found)))
counts = st.integers(0, 1000)


@pytest.mark.parametrize(
    ("text", "pace"),
    [
        ("unlimited", Unlimited()),
        ("rate:50", Rate(per_second=50)),
        ("share:20", Share(percent=20)),
        ("ramp", Ramp()),
        ("ramp:1,5,25", Ramp(steps=(1, 5, 25))),
    ],
)
def test_a_pace_is_read_and_survives_its_storage(text: str, pace: Pace) -> None:
    assert parse_pace(text) == pace
    assert pace_of(pace.as_json()) == pace


@pytest.mark.parametrize("text", ["", "fast", "rate", "rate:0", "rate:x", "share:101", "ramp:0", "ramp:5,1"])
def test_what_is_no_pace_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="is no pace"):
        parse_pace(text)


@given(steps, st.integers(1, 3000), st.data())
def test_a_ramp_sends_each_step_whole_and_never_more_while_outcomes_are_unknown(
    found: tuple[int, ...], letters: int, data: st.DataObject
) -> None:
    step = step_sent = sent = outstanding = 0
    batches = []
    while sent < letters:
        turn = ramp_turn(Ramp(steps=found), step=step, step_sent=step_sent, outstanding=outstanding)
        if turn.advance:
            assert outstanding == 0
            batches.append(step_sent)
            step, step_sent = step + 1, 0
        elif turn.may_send:
            going = min(turn.may_send, letters - sent, data.draw(st.integers(1, 500)))
            step_sent, sent, outstanding = step_sent + going, sent + going, outstanding + going
        else:
            outstanding -= data.draw(st.integers(1, outstanding))
        assert outstanding <= found[min(step, len(found) - 1)]
    assert batches == [found[min(index, len(found) - 1)] for index in range(len(batches))]


@given(counts, counts, counts, counts, counts, st.integers(0, 100), st.booleans())
def test_the_verdict_on_an_operation_follows_its_outcomes(
    succeeded: int, came_back: int, same: int, lost: int, outstanding: int, percent: int, on_same: bool
) -> None:
    judged = Judged(
        succeeded=succeeded,
        came_back=came_back,
        same_cause=min(same, came_back),
        lost=lost,
        outstanding=outstanding,
    )

    verdict = pause_for(judged, above_percent=percent, on_same_cause=on_same)

    enough = judged.known >= LEAST_JUDGED or not outstanding
    if on_same and judged.same_cause:
        assert verdict is PausedBecause.SAME_CAUSE
    elif enough and (came_back + lost) * 100 > percent * judged.known:
        assert verdict is PausedBecause.FAILURES
    else:
        assert verdict is None


def test_a_single_failure_of_many_on_their_way_pauses_nothing_yet() -> None:
    assert pause_for(Judged(came_back=1, outstanding=5), above_percent=10, on_same_cause=False) is None
    assert pause_for(Judged(came_back=1), above_percent=10, on_same_cause=False) is PausedBecause.FAILURES


def test_the_share_of_a_queue_is_of_what_left_it() -> None:
    before = Look(at=0.0, length=1000, sent=0)
    now = Look(at=10.0, length=600, sent=100)

    assert share_rate(20, before=before, now=now, rate=1.0) == pytest.approx(0.2 * 500 / 10)


def test_where_nothing_waits_nobody_is_kept_waiting_and_the_rate_grows() -> None:
    before, now = Look(at=0.0, length=0, sent=0), Look(at=1.0, length=0, sent=5)

    assert share_rate(20, before=before, now=now, rate=5.0) == 10.0


def test_every_state_of_an_operation_leads_to_its_end_and_none_out_of_it() -> None:
    reached = {OperationState.PLANNED}
    for _ in OperationState:
        reached |= {new for old in reached for new in OPERATION_TRANSITIONS[old]}
    assert reached == set(OperationState)
    assert all(not OPERATION_TRANSITIONS[state] for state in ENDED)
    assert sources_of_operation(OperationState.CLOSED) == (OperationState.SETTLING, OperationState.CANCELLED)
    assert ITEM_ENDS.isdisjoint({ItemState.WAITING, ItemState.STAGED, ItemState.SENT})
