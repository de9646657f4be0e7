"""Pings: what is told of Beat and of each schedule, once, by a leader whose ticks end."""

from __future__ import annotations

from threading import Thread

import pytest

from beat_leader.pings import Pings, ping_url, post
from beat_leader.stores.memory import Ticks
from beat_leader.ticks import Decision, Outcome, State, task_id_for
from tests.helpers.alerting import Postbox

URL = "https://hc.example/uuid"
NOW_MS = 1_800_000_000_000


class World:
    def __init__(self, **options):
        self.ticks, self.told, self.moment, self.now_ms = Ticks(), [], 100.0, NOW_MS
        self.refuse = False
        self.pings = Pings(
            self.ticks, now_ms=lambda: self.now_ms, post=self.post, clock=lambda: self.moment, **options
        )

    def post(self, url, text):
        self.told.append((url, text))
        if self.refuse:
            raise OSError("refused")

    def due(self, due_ms, state=State.DUE):
        decision = Decision(schedule="nightly", due_ms=due_ms, state=state, decided_ms=due_ms)
        self.ticks.decide(1, [decision])
        if state is State.DUE:
            self.ticks.sent(1, [("nightly", due_ms)], due_ms)
        return task_id_for("nightly", due_ms)

    def lead(self):
        # Without the thread: the test takes its turns.
        self.pings._thread = Thread()
        self.pings.lead({"nightly": URL, "quiet": ""})

    def turn(self):
        self.told.clear()
        self.pings.turn()
        return self.told


def test_a_url_keeps_its_query_and_gets_signal_and_run():
    assert ping_url(f"{URL}?create=1", "start", "r") == f"{URL}/start?create=1&rid=r"
    assert ping_url(URL) == URL


def test_start_and_success_are_told_once_with_the_task_id():
    world = World()
    world.lead()
    task = world.due(NOW_MS)

    assert world.turn() == []
    world.ticks.note(task, Outcome.STARTED, NOW_MS + 10)
    assert world.turn() == [(f"{URL}/start?rid={task}", "")]
    world.ticks.note(task, Outcome.SUCCEEDED, NOW_MS + 20)
    assert world.turn() == [(f"{URL}?rid={task}", "")]
    assert world.turn() == []


def test_a_failure_is_told_with_its_reason_also_when_the_next_due_time_came_before():
    world = World()
    world.lead()
    first = world.due(NOW_MS)
    world.turn()
    world.due(NOW_MS + 1000)
    world.ticks.note(first, Outcome.DEAD, NOW_MS + 1500, "task_error")

    assert world.turn() == [(f"{URL}/fail?rid={first}", "task_error")]


def test_what_was_not_sent_in_its_time_has_failed_and_what_was_skipped_has_not():
    world = World()
    world.lead()
    world.due(NOW_MS, State.SKIPPED)
    assert world.turn() == []
    world.ticks.decide(1, [Decision(schedule="nightly", due_ms=NOW_MS + 1, state=State.DUE)])
    world.ticks.missed(1, "nightly", NOW_MS + 1, "redis://secret@host is away")

    ((url, text),) = world.turn()

    assert url.startswith(f"{URL}/fail?")
    assert "secret" not in text


def test_a_new_leader_does_not_tell_of_old_successes():
    world = World()
    old = world.due(NOW_MS - 3_600_000)
    world.ticks.note(old, Outcome.SUCCEEDED, NOW_MS - 3_500_000)
    recent = world.due(NOW_MS - 5_000)
    world.ticks.note(recent, Outcome.SUCCEEDED, NOW_MS - 1_000)

    world.lead()

    assert world.turn() == [(f"{URL}?rid={recent}", "")]


def test_a_leader_pings_for_itself_and_one_whose_tick_hangs_fails_once():
    world = World(url=URL, every_seconds=60.0)
    world.lead()
    world.pings.ticked(leads=True)
    assert world.turn() == [(URL, "")]
    assert world.turn() == []

    world.moment += 61.0
    ((url, text),) = world.turn()

    assert (url, text) == (f"{URL}/fail", "its last tick ended 61 s ago")
    assert world.turn() == []


def test_a_standby_pings_nobody():
    world = World(url=URL)
    world.lead()
    world.due(NOW_MS)
    world.pings.ticked(leads=False)

    assert world.turn() == []


def test_a_ping_that_nobody_takes_is_tried_twice_and_its_url_is_not_logged(caplog):
    world = World(url=URL)
    world.lead()
    world.refuse = True

    assert world.turn() == [(URL, ""), (URL, "")]
    assert "not taken" in caplog.text
    assert "hc.example" not in caplog.text


def test_a_url_that_is_none_is_not_logged_and_holds_up_no_other(caplog):
    world = World(url="http://[secret")
    world.pings._post = post
    world.lead()
    world.pings.lead({"nightly": "http://localhost/a secret"})
    world.ticks.note(world.due(NOW_MS), Outcome.SUCCEEDED, NOW_MS)
    world.turn()

    assert [record.getMessage() for record in caplog.records] == [
        "the ping of Beat was not taken: ValueError",
        "the ping of nightly was not taken: InvalidURL",
    ]


def test_a_ping_is_a_post_that_a_receiver_gets_and_one_of_another_kind_is_none():
    with Postbox() as box:
        post(ping_url(box.url, "fail", "run"), "why")
        (posted,) = box.posted
    assert posted.body == b"why"
    with pytest.raises(ValueError, match="http"):
        post("file:///etc/hostname", "")
