"""Outcomes: written for the due time they are of, by a worker that no store holds up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from beat_leader import outcomes as module
from beat_leader.outcomes import SUPERSEDED, Outcomes
from beat_leader.stores.memory import Ticks
from beat_leader.ticks import Decision, Outcome, State, TicksUnavailable, task_id_for
from hardening.core import superseded
from hardening.core.identity import BEAT_HEADER, SUPERSEDED_HEADER
from hardening.intake.expired import _came_again

DUE = 1_800_000_000_000
ID = task_id_for("nightly report", DUE)
OF = f"{DUE} nightly report"


@pytest.fixture
def ticks():
    found = Ticks()
    found.decide(1, [Decision(schedule="nightly report", due_ms=DUE, state=State.DUE)])
    return found


def row(ticks):
    (found,) = ticks.history()
    return found


def test_a_task_is_followed_to_its_end_and_a_replay_makes_good_a_dead_letter(ticks):
    outcomes = Outcomes(ticks)

    outcomes.began(scheduled=OF, delivery_key=ID)
    assert row(ticks).outcome is Outcome.STARTED
    outcomes.died(scheduled=OF, delivery_key=ID, reason="permanent")
    assert (row(ticks).outcome, row(ticks).detail) == (Outcome.DEAD, "permanent")
    outcomes.succeeded(scheduled=OF, delivery_key=ID)
    assert row(ticks).outcome is Outcome.SUCCEEDED


def test_another_task_with_the_headers_of_a_schedules_task_is_not_taken_for_it(ticks):
    outcomes = Outcomes(ticks)

    for scheduled, key in ((OF, "child"), ("", ID), ("no number", ID), (f"{DUE} other", ID)):
        outcomes.succeeded(scheduled=scheduled, delivery_key=key)
        assert not outcomes.superseded(scheduled, key)

    assert row(ticks).outcome is Outcome.UNKNOWN


def test_a_store_that_does_not_answer_is_left_alone_for_a_while(ticks, monkeypatch):
    asked = []
    moment = [100.0]
    monkeypatch.setattr(module, "steady", lambda: moment[0])

    def away(*_):
        asked.append(moment[0])
        raise TicksUnavailable("away")

    monkeypatch.setattr(ticks, "note", away)
    outcomes = Outcomes(ticks)
    for _ in range(5):
        outcomes.began(scheduled=OF, delivery_key=ID)
    moment[0] += 10.1
    outcomes.began(scheduled=OF, delivery_key=ID)

    assert asked == [100.0, 110.1]


def test_a_message_that_expired_is_superseded_only_if_that_is_written(ticks, monkeypatch):
    headers = {BEAT_HEADER: OF, SUPERSEDED_HEADER: 1}
    monkeypatch.setattr(superseded, "_offered", [])
    assert not superseded.recorded_as_superseded(headers, ID)
    superseded.offer_superseded(Outcomes(ticks).superseded)

    assert not superseded.recorded_as_superseded({BEAT_HEADER: OF}, ID)  # Somebody said when it expires.
    assert not superseded.recorded_as_superseded({**headers, "retries": 1}, ID)  # It began, and failed.
    assert superseded.recorded_as_superseded(headers, ID)
    assert (row(ticks).outcome, row(ticks).detail) == (Outcome.CANCELLED, SUPERSEDED)

    ticks.prune(before_ms=DUE + 1, most=0)
    monkeypatch.setattr(ticks, "note", lambda *_: 1 / 0)
    assert not superseded.recorded_as_superseded(headers, ID)


@pytest.mark.parametrize(
    ("headers", "delivery_info", "again"),
    [({}, {}, False), (None, {"redelivered": True}, True), ({"redelivered": True}, {}, True)],
    ids=["first", "of-the-broker", "of-kombu"],
)
def test_what_was_delivered_before_may_have_begun_and_keeps_its_letter(headers, delivery_info, again):
    assert _came_again(SimpleNamespace(headers=headers, delivery_info=delivery_info)) is again
