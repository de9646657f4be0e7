"""What a tick does: as a standby, as a new leader, with a store or a source away, and when it is refused."""

from __future__ import annotations

import time
from datetime import UTC, timedelta
from typing import Any

import pytest
from celery.schedules import BaseSchedule, schedule

from beat_leader.beating import Beating
from beat_leader.clock import StoreClock, steady
from beat_leader.conf import BeatSettings
from beat_leader.dispatch import Job
from beat_leader.entry import Entry, SourceUnavailable
from beat_leader.stores.memory import Register, Ticks
from beat_leader.term import Term
from beat_leader.ticks import Decision, State, TicksUnavailable

NOW = 1_800_000_000.0


class Election:
    """Decided by the test."""

    def __init__(self) -> None:
        self.term: Term | None = None
        self.epoch, self.problem, self.ticks = 0, "", 0
        self.leader = "me"
        self.given_back: list[str] = []

    def lead(self, epoch: int, seconds: float = 60.0) -> None:
        self.term = Term(holder="me", epoch=epoch, trusted_until=steady() + seconds)

    def wait(self, timeout: float) -> Term | None:
        return self.term

    def ticked(self) -> None:
        self.ticks += 1

    def start(self) -> None: ...

    def stop(self) -> None:
        self.term = None

    def give_back(self, why: str) -> None:
        self.given_back.append(why)


class Schedules:
    """A source in memory."""

    def __init__(self) -> None:
        self.present: dict[str, Entry] = {}
        self.is_changed = self.away = False
        self.told: dict[str, tuple[float, int]] = {}
        self.broken: dict[str, str] = {}
        self.installed = 0

    def install(self) -> None:
        self.installed += 1

    def entries(self) -> dict[str, Entry]:
        if self.away:
            raise SourceUnavailable("away")
        return dict(self.present)

    def changed(self) -> bool:
        return self.is_changed

    def ran(self, runs: Any) -> None:
        self.told.update(runs)


class World:
    def __init__(self) -> None:
        self.now = NOW
        self.clock = StoreClock()
        self.ticks, self.register = Ticks(), Register()
        self.source = Schedules()
        self.sent: list[tuple[str, float]] = []
        self.election = Election()
        self.beating = self.beat()
        self.pass_seconds(0)

    def beat(self) -> Beating:
        election: Any = self.election
        return Beating(
            holder="me",
            elector=election,
            ticks=self.ticks,
            register=self.register,
            source=self.source,
            clock=self.clock,
            settings=BeatSettings(heartbeat_file=""),
            publish=self.publish,
            zone=UTC,
        )

    def publish(self, job: Job) -> None:
        self.sent.append((job.entry.name, round(job.due_ms / 1000 - NOW, 1)))

    def pass_seconds(self, seconds: float) -> None:
        self.now += seconds
        asked = steady()
        # A little more: the real clock goes on while a tick runs, and due times count from there.
        now = self.now + (0.04 if seconds else 0)
        self.clock.heard(asked_at=asked, answered_at=asked, store_now=now, wall=time.time())

    def every(self, seconds: float, name: str = "a", **more: Any) -> None:
        when = schedule(timedelta(seconds=seconds))
        self.source.present[name] = Entry(name=name, task="t", when=when, **more)

    def look_again(self) -> None:
        """As a second later, until the schedules were read again."""
        self.beating._looked_at = 0.0
        self.tick()
        assert self.beating._rereading.under_way
        self.beating._rereading.wait()
        self.tick()

    def tick(self) -> float:
        return self.beating.tick()


@pytest.fixture
def world():
    return World()


def test_a_standby_sends_nothing_and_gives_its_sign_of_life(world) -> None:
    world.every(1)
    world.tick()
    world.pass_seconds(5)
    world.tick()

    assert world.sent == []
    (sign,) = world.register.signs()
    assert (sign.role, sign.schedules) == ("standby", 0)


def test_a_leader_sends_each_due_time_and_sleeps_until_the_next(world) -> None:
    world.every(2)
    world.election.lead(1)
    world.tick()
    world.pass_seconds(1.9)
    assert world.tick() == pytest.approx(0.1, abs=0.09)
    world.pass_seconds(2.3)
    world.tick()

    assert world.sent == [("a", 2.0), ("a", 4.0)]
    assert [tick.state for tick in world.ticks.history("a")] == [State.SENT] * 2
    assert world.election.ticks == 3
    assert world.source.told["a"][1] >= 1


def test_a_new_leader_reads_afresh_finishes_what_was_left_and_dispatches_at_once(world) -> None:
    world.every(2)
    world.election.lead(1)
    world.tick()
    world.pass_seconds(2)
    due_ms = world.ticks.cursors()["a"].anchor_ms + 2000
    world.ticks.decide(1, [Decision(schedule="a", due_ms=due_ms, state=State.DUE, decided_ms=due_ms)])

    world.beating = world.beat()  # Another process.
    world.pass_seconds(2.5)
    world.election.lead(2)
    world.tick()

    assert world.sent == [("a", 2.0), ("a", 4.0)]


def test_a_leader_that_was_standby_does_not_use_what_it_knew_of_its_earlier_term(world) -> None:
    world.every(2)
    world.election.lead(1)
    world.tick()
    world.election.term = None
    world.source.present.clear()
    world.pass_seconds(10)
    world.tick()
    world.election.lead(2)
    world.tick()

    assert world.sent == []
    assert world.ticks.cursors() == {}


def test_a_term_that_is_not_trusted_sends_nothing_though_it_decided(world) -> None:
    world.every(1)
    world.election.lead(1)
    world.tick()
    world.election.lead(1, seconds=-0.001)
    world.pass_seconds(1)
    world.tick()

    assert world.sent == []


def test_a_store_that_is_away_is_told_and_nothing_is_sent_until_it_answers(world, monkeypatch) -> None:
    world.every(1)
    world.election.lead(1)
    world.tick()
    world.pass_seconds(1)

    def away(*_: Any) -> None:
        raise TicksUnavailable("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(world.ticks, "decide", away)
        world.tick()
    assert world.sent == []
    assert world.beating._problem == "the store is away"

    world.tick()
    assert world.sent == [("a", 1.0)]
    assert world.beating._problem == ""


def test_a_refused_leader_stands_by_and_the_refusal_is_kept(world) -> None:
    world.every(1)
    world.election.lead(1)
    world.tick()
    world.ticks.open_term(2)
    world.pass_seconds(1)
    world.tick()
    world.tick()

    assert world.sent == []
    ((_, epoch, holder, _),) = world.register.refusals(since=0)
    assert (epoch, holder) == (1, "me")


def test_a_changed_schedule_is_noticed_and_what_is_gone_is_not_sent(world) -> None:
    world.every(60)
    world.election.lead(1)
    world.tick()
    world.source.present.clear()
    world.every(1, "b")
    world.source.is_changed = True
    world.look_again()
    world.pass_seconds(60)
    world.tick()

    assert {name for name, _ in world.sent} == {"b"}
    assert set(world.ticks.cursors()) == {"b"}


def test_a_change_that_no_source_can_see_is_found_when_all_are_read_again(world) -> None:
    world.every(60)
    world.election.lead(1)
    world.tick()
    world.source.present.clear()
    world.every(1, "b")
    world.beating._read_at = steady() - BeatSettings().reload_seconds
    world.look_again()

    assert set(world.ticks.cursors()) == {"b"}


def test_a_source_that_is_away_leaves_the_leader_with_what_it_has(world) -> None:
    world.every(1)
    world.election.lead(1)
    world.tick()
    world.source.away = world.source.is_changed = True
    world.look_again()
    world.pass_seconds(1)
    world.tick()
    world.tick()

    assert world.sent == [("a", 1.0)]


def test_a_one_off_is_sent_once(world) -> None:
    world.every(1, one_off=True)
    world.election.lead(1)
    world.tick()
    world.pass_seconds(1)
    world.tick()
    world.pass_seconds(5)
    world.tick()
    world.beating = world.beat()  # And its source was never told.
    world.election.lead(2)
    world.tick()
    world.pass_seconds(5)
    world.tick()

    assert world.sent == [("a", 1.0)]


def test_stopping_marks_what_was_sent_and_leaves(world) -> None:
    world.every(1)
    world.election.lead(1)
    world.tick()
    world.beating.stop()

    assert world.election.term is None
    assert world.register.signs() == []


class Moody(BaseSchedule):
    """Of the project: every second, until it breaks."""

    is_broken = False

    def remaining_estimate(self, last_run_at: Any) -> timedelta:
        if self.is_broken:
            raise RuntimeError("broken")
        return timedelta(seconds=1)


def test_a_schedule_that_breaks_when_it_was_decided_stops_no_other(world, monkeypatch) -> None:
    world.every(1)
    moody = Moody()
    world.source.present["moody"] = Entry(name="moody", task="t", when=moody)
    world.election.lead(1)
    world.tick()
    world.pass_seconds(1.2)
    plain = world.ticks.decide

    def decide(*asked: Any) -> list[bool]:
        moody.is_broken = True
        answer: list[bool] = plain(*asked)
        return answer

    monkeypatch.setattr(world.ticks, "decide", decide)
    world.tick()
    world.beating = world.beat()  # And its row is to be finished.
    world.ticks.decide(1, [Decision(schedule="moody", due_ms=int(NOW * 1000) + 1500, state=State.DUE)])
    world.election.lead(2)
    world.pass_seconds(1)
    world.tick()

    assert [at for name, at in world.sent if name == "a"] == [1.0, 2.0]
    assert ("moody", 1.5) in world.sent


def test_a_one_off_that_cannot_be_sent_yet_is_not_decided_again_when_schedules_are_read(
    world, monkeypatch
) -> None:
    def down(job: Job) -> None:
        raise OSError("down")

    world.every(60, one_off=True)
    monkeypatch.setattr(world.beating._dispatch, "_publish", down)
    world.election.lead(1)
    world.tick()
    world.pass_seconds(61)
    world.tick()
    world.source.is_changed = True
    world.every(60, one_off=True)
    world.look_again()
    world.pass_seconds(60)
    world.tick()

    assert [row.state for row in world.ticks.history()] == [State.DUE]


def test_a_store_that_forgot_is_told_again_and_no_due_time_is_lost_or_doubled_by_the_next_term(world) -> None:
    def forget() -> None:
        vars(world.ticks).clear()
        vars(world.ticks).update(vars(Ticks()))

    world.every(2)
    world.election.lead(1)
    world.tick()
    known = world.ticks.cursors()
    world.pass_seconds(2.5)
    world.tick()
    forget()
    world.beating._read_at = world.beating._compared_at = steady() - 100
    world.look_again()
    assert world.ticks.cursors()["a"].anchor_ms == known["a"].anchor_ms

    forget()
    world.ticks.put_cursors(1, known.values())  # Of a moment ago.
    world.election.lead(2)
    world.tick()
    forget()
    world.pass_seconds(2)
    world.election.lead(1)  # The lock was forgotten as well.
    world.tick()
    assert [round(at) for _, at in world.sent] == [2, 4]

    world.election.term, world.election.leader = None, "another"
    world.tick()
    forget()
    world.pass_seconds(2)
    world.election.lead(3)
    world.tick()
    assert [round(at) for _, at in world.sent] == [2, 4]  # What the other one sent is not known.


def test_a_leader_that_cannot_work_for_a_lease_or_is_refused_gives_the_lease_back(world) -> None:
    world.election.lead(1)
    world.source.away = True
    world.tick()
    assert world.election.given_back == []
    world.beating._unable_since = steady() - 7
    world.tick()
    assert world.election.given_back == ["away"]

    world.source.away = False
    world.every(1)
    world.ticks.open_term(2)
    world.tick()
    assert "epoch 2" in world.election.given_back[1]
