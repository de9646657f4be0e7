"""What becomes of due times that were missed: every one of them ends in one decision."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beat_leader.due import Due
from beat_leader.entry import Entry, Misfire, Policy
from beat_leader.misfire import decide, keep_of, window_seconds
from beat_leader.ticks import State

NOW = 10_000.0


def an_entry(*, one_off: bool = False, **policy) -> Entry:
    return Entry(name="report", task="t", when=None, one_off=one_off, policy=Policy(**policy))


def decided(entry: Entry, *late: float, overlapping: bool = False, **earlier) -> list[tuple]:
    due = Due(times=tuple(NOW - each for each in late), **earlier)
    return [
        (each.state.value, NOW - each.due_ms / 1000, each.why, each.count)
        for each in decide(entry, due, now=NOW, overlapping=overlapping)
    ]


LATER = "a later due time is sent"


@pytest.mark.parametrize(
    ("policy", "late", "expected"),
    [
        ({}, (9, 5, 1), [("due", 9, "", 1), ("due", 5, "", 1), ("due", 1, "", 1)]),
        ({}, (300, 200, 100), [("skipped", 200, LATER, 2), ("due", 100, "", 1)]),
        ({}, (300, 200, 5), [("skipped", 200, LATER, 2), ("due", 5, "", 1)]),
        ({"misfire": Misfire.SKIP}, (200, 100), [("skipped", 100, "misfire: skip", 2)]),
        ({"misfire": Misfire.SKIP}, (200, 5), [("skipped", 200, "misfire: skip", 1), ("due", 5, "", 1)]),
        (
            {"misfire": Misfire.ALL, "most": 2},
            (400, 300, 200, 100),
            [("skipped", 300, "more than 2 were missed", 2), ("due", 200, "", 1), ("due", 100, "", 1)],
        ),
        (
            {"misfire": Misfire.ALL, "grace_seconds": 250.0},
            (400, 300, 200),
            [("skipped", 300, "later than the grace of 250 s", 2), ("due", 200, "", 1)],
        ),
        (
            {"grace_seconds": 3.0},
            (5, 1),
            [("skipped", 5, "later than the grace of 3 s", 1), ("due", 1, "", 1)],
        ),
        ({"grace_seconds": 60.0}, (300, 200), [("skipped", 200, "later than the grace of 60 s", 2)]),
        (
            {"grace_seconds": 250.0},
            (400, 200, 100),
            [
                ("skipped", 400, "later than the grace of 250 s", 1),
                ("skipped", 200, LATER, 1),
                ("due", 100, "", 1),
            ],
        ),
        ({"overlap": False}, (300, 9, 5), [("skipped", 9, LATER, 2), ("due", 5, "", 1)]),
    ],
    ids=[
        "takeover",
        "latest",
        "latest-and-fresh",
        "skip",
        "skip-and-fresh",
        "all-up-to-two",
        "all-in-grace",
        "grace-shorter-than-misfire",
        "latest-beyond-grace",
        "two-reasons",
        "no-overlap",
    ],
)
def test_what_is_late_is_decided_by_its_policy(policy, late, expected):
    assert decided(an_entry(**policy), *late) == expected


def test_a_schedule_whose_task_runs_is_skipped_only_if_it_must_not_overlap():
    assert decided(an_entry(), 5, overlapping=True) == [("due", 5, "", 1)]
    expected = [("skipped", 1, "the one before has not ended", 2)]
    assert decided(an_entry(overlap=False), 5, 1, overlapping=True) == expected


def test_what_is_to_run_once_is_sent_once():
    expected = [("due", 9, "", 1), ("skipped", 1, "it is sent once only", 2)]
    assert decided(an_entry(one_off=True), 9, 5, 1) == expected


def test_due_times_that_were_only_counted_are_one_row_with_those_after_them():
    entry = an_entry()
    due = Due(times=(NOW - 30, NOW - 20), earlier_count=98, earlier_first=NOW - 1010, earlier_last=NOW - 40)
    (skipped, sent) = decide(entry, due, now=NOW, overlapping=False)
    assert (skipped.first_ms, skipped.due_ms, skipped.count) == (8_990_000, 9_970_000, 99)
    assert (sent.due_ms, sent.first_ms, sent.count) == (9_980_000, None, 1)


@settings(max_examples=200, deadline=None)
@given(
    late=st.lists(st.integers(0, 5000), unique=True, max_size=20),
    misfire=st.sampled_from(Misfire),
    most=st.integers(1, 5),
    grace=st.none() | st.floats(0, 4000),
    overlap=st.booleans(),
    overlapping=st.booleans(),
    one_off=st.booleans(),
    earlier=st.integers(0, 1000),
)
def test_every_due_time_ends_in_one_decision(
    late, misfire, most, grace, overlap, overlapping, one_off, earlier
):
    times = tuple(sorted(NOW - each for each in late))
    counted = {}
    if earlier and times:
        counted = {"earlier_count": earlier, "earlier_first": 1.0, "earlier_last": times[0] - 1}
    entry = an_entry(one_off=one_off, misfire=misfire, most=most, grace_seconds=grace, overlap=overlap)
    made = decide(entry, Due(times=times, **counted), now=NOW, overlapping=overlapping)
    assert sum(each.count for each in made) == len(times) + counted.get("earlier_count", 0)
    assert [each.due_ms for each in made] == sorted({each.due_ms for each in made})
    for each in made:
        assert (each.state is State.DUE) == (not each.why)
        assert each.first_ms is None or each.first_ms < each.due_ms
        if each.state is State.DUE:
            assert grace is None or NOW - each.due_ms / 1000 <= grace
    sent = [each for each in made if each.state is State.DUE]
    if one_off or not overlap:
        assert len(sent) <= 1
    if not overlap and overlapping:
        assert not sent


def test_a_message_that_fails_is_tried_until_its_window_ends():
    assert window_seconds(an_entry(grace_seconds=5.0), 100, 160) == 5
    assert window_seconds(an_entry(), 100, 110) == 60
    assert window_seconds(an_entry(), 100, 3700) == 3600
    assert window_seconds(an_entry(), 100, 110, decided=1100) == 1060
    assert window_seconds(an_entry(), 100, None) == 86_400


def test_as_many_due_times_are_listed_as_a_policy_may_send():
    assert keep_of(an_entry(misfire=Misfire.ALL, most=500)) == 500
    assert keep_of(an_entry(most=500)) == 100
