"""What a letter says of a resolved group, when a release has run, and what a batch adds to the counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from dlq.groups.duty import _next_batch
from dlq.groups.resolution import Resolution
from dlq.groups.settling import LONGEST, SILENT_AFTER, has_settled
from dlq.groups.states import GroupState, after_new_letter, group_may_become, sources_of_group
from dlq.groups.tally import LetterFacts, tally

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
BEFORE, LATER, MUCH_LATER = NOON - timedelta(hours=1), NOON + timedelta(hours=1), NOON + timedelta(hours=2)


@pytest.mark.parametrize(
    ("failed_at", "release", "resolved_in", "ran_at", "contradicted"),
    [
        pytest.param(BEFORE, "1", "", None, False, id="failed-before"),
        pytest.param(NOON, "1", "", None, False, id="failed-at-that-moment"),
        pytest.param(LATER, "1", "", None, True, id="failed-after"),
        pytest.param(LATER, "1", "2", None, False, id="older-release-before-the-new-one-runs"),
        pytest.param(LATER, "1", "2", MUCH_LATER, False, id="older-release-failed-before-the-new-one-ran"),
        pytest.param(MUCH_LATER, "1", "2", LATER, True, id="older-release-failed-after-the-new-one-ran"),
        pytest.param(LATER, "2", "2", None, True, id="the-release-itself"),
        pytest.param(BEFORE, "2", "2", BEFORE, False, id="the-release-itself-before"),
        pytest.param(LATER, "", "2", None, False, id="no-release-before-it-runs"),
    ],
)
def test_what_speaks_against_a_resolution(failed_at, release, resolved_in, ran_at, contradicted) -> None:
    resolution = Resolution(at=NOON, release=resolved_in, ran_at=ran_at)

    assert resolution.is_contradicted_by(failed_at=failed_at, release=release) is contradicted


def test_only_a_letter_that_counts_regresses_and_only_what_was_resolved() -> None:
    for state in GroupState:
        assert after_new_letter(state, counts=False) is state
        expected = GroupState.REGRESSED if state is GroupState.RESOLVED else state
        assert after_new_letter(state, counts=True) is expected
        assert not group_may_become(state, GroupState.REGRESSED)
    assert GroupState.REGRESSED in sources_of_group(GroupState.RESOLVED)


@pytest.mark.parametrize(
    ("others_last_at", "now", "settled"),
    [
        pytest.param(None, NOON, True, id="no-other"),
        pytest.param(NOON, NOON + timedelta(seconds=10), False, id="another-runs"),
        pytest.param(NOON, NOON + SILENT_AFTER, True, id="the-other-fell-silent"),
        pytest.param(NOON + LONGEST, NOON + LONGEST, True, id="the-other-stays"),
    ],
)
def test_a_release_has_run_when_others_are_silent_or_were_waited_for(others_last_at, now, settled) -> None:
    assert has_settled(first_at=NOON, others_last_at=others_last_at, now=now) is settled


def test_a_batch_is_added_up_by_group_hour_and_facet_newest_first() -> None:
    def facts(fingerprint: str, failed_at: datetime, worker: str) -> LetterFacts:
        return LetterFacts(uuid4(), fingerprint, failed_at, "r", "t", "e", "q", "1", worker)

    old, new = facts("a", NOON, "w1"), facts("a", NOON + timedelta(minutes=59), "w1")
    other = facts("b", LATER, "w2")

    counts = tally([old, other, new], ("worker",))

    assert counts.groups == {"a": [new, old], "b": [other]}
    assert counts.hours == {("a", NOON): 2, ("b", LATER): 1}
    assert counts.facets == {("a", "worker", "w1"): (2, new.failed_at), ("b", "worker", "w2"): (1, LATER)}


def test_batches_grow_while_they_are_short_and_shrink_when_they_are_long() -> None:
    assert _next_batch(1000, 0.01, full=True) > 1000
    assert _next_batch(1000, 0.01, full=False) == 1000
    assert _next_batch(1000, 0.5, full=True) < 1000
    assert _next_batch(1, 9.0, full=True) > 0
