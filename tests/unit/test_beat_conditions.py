"""What people are told of Beat: each condition finds its trouble, and nothing where all is well."""

from __future__ import annotations

import pytest

from beat_leader import conditions as module
from beat_leader.conditions import conditions
from beat_leader.entry import Policy
from beat_leader.lock import LockUnavailable
from beat_leader.locks.memory import MemoryLock
from beat_leader.register import Role, Sign
from beat_leader.stores.memory import Register, Ticks
from beat_leader.ticks import Cursor, Decision, State

START = 1_800_000_000.0


class World:
    def __init__(self):
        self.moment = START
        self.lock = MemoryLock(self.now)
        self.ticks = Ticks()
        self.register = Register(self.now)
        self.policy = Policy()

    def now(self):
        return self.moment

    def lead(self, holder="a"):
        epoch = self.lock.acquire(holder, lease_seconds=6.0).epoch
        self.ticks.open_term(epoch)
        self.register.term_began(epoch, holder)
        return epoch

    def sign(self, holder="a", skew=0.0):
        sign = Sign(
            holder=holder,
            role=Role.LEADER,
            epoch=1,
            tick_seconds=0.1,
            lag_seconds=0.0,
            schedules=1,
            skew_seconds=skew,
            host=f"host-{holder}",
        )
        self.register.tell(sign)

    def schedule(self):
        cursor = Cursor(schedule="nightly", definition="d", anchor_ms=0, decided_ms=0)
        self.ticks.put_cursors(1, [cursor])

    def due(self):
        due_ms = int(self.moment * 1000)
        self.ticks.decide(1, [Decision(schedule="nightly", due_ms=due_ms, state=State.DUE)])
        return due_ms

    def found(self):
        """Subjects by condition; those that found nothing are left out."""
        looks = {
            each.name.removeprefix("beat."): [fact.subject for fact in each.look()] for each in conditions()
        }
        return {name: subjects for name, subjects in looks.items() if subjects}


@pytest.fixture
def world(monkeypatch):
    world = World()
    for name in ("lock", "ticks", "register"):
        monkeypatch.setattr(module, f"chosen_{name}", lambda app, name=name: getattr(world, name))
    monkeypatch.setattr(module, "_wanted", lambda app: bool(world.ticks.cursors()))
    monkeypatch.setattr(module, "celery_app", object)
    monkeypatch.setattr(module, "policy_of", lambda name: world.policy)
    return world


def test_a_leader_that_ticks_is_nothing_to_tell(world):
    world.lead()
    world.schedule()
    world.sign()

    assert world.found() == {}


def test_nobody_leads_matters_only_where_something_is_scheduled(world):
    assert world.found() == {}

    world.schedule()

    assert world.found() == {"no_leader": ["beat"]}


def test_in_report_mode_a_plain_beat_is_not_missed_for_a_leader(world, settings):
    settings.HARDENING = {"MODE": "report"}
    world.schedule()
    assert world.found() == {}

    world.sign()
    assert world.found() == {"no_leader": ["beat"]}


def test_a_leader_that_renews_its_lease_and_does_not_tick_is_told_of(world):
    epoch = world.lead()
    world.sign()
    for _ in range(5):
        world.moment += 5
        world.lock.renew("a", epoch, lease_seconds=6.0)

    assert world.found() == {"leader_not_ticking": ["a"]}


def test_one_that_never_ticked_is_told_of_as_well(world):
    epoch = world.lead()
    for _ in range(5):
        world.moment += 5
        world.lock.renew("a", epoch, lease_seconds=6.0)

    assert world.found() == {"leader_not_ticking": ["a"]}


def test_a_due_time_that_is_not_sent_is_late_after_its_grace(world):
    world.lead()
    world.due()
    world.moment += 20
    world.lead()
    world.sign()
    assert world.found() == {}

    world.policy = Policy(grace_seconds=15.0)

    assert world.found() == {"schedule_late": ["nightly"]}


def test_a_due_time_that_was_missed_is_told_of_for_ten_minutes(world):
    world.lead()
    world.ticks.missed(1, "nightly", world.due(), "the broker was away")
    world.sign()
    assert world.found() == {"missed": ["nightly"]}

    world.moment += 601
    world.lead()
    world.sign()

    assert world.found() == {}


def test_terms_that_are_lost_again_and_again_are_flapping_and_clean_ones_are_not(world):
    for number in range(4):
        epoch = world.lead(f"{number}")
        world.register.term_ended(epoch, "resigned")
        world.lock.resign(f"{number}", epoch)
    world.lead()
    world.sign()
    assert world.found() == {}

    for _ in range(3):
        world.moment += 7
        world.lead()
    world.sign()

    assert world.found() == {"flapping": ["beat"]}


def test_a_host_whose_clock_is_off_is_named(world):
    world.lead()
    world.sign(skew=-2.5)

    assert world.found() == {"clock_skew": ["host-a"]}


def test_a_beat_that_was_refused_is_told_of(world):
    world.lead()
    world.sign()
    world.register.refused(1, "zombie", "epoch 1 is over")

    assert world.found() == {"two_epochs": ["zombie 1"]}


def test_a_store_that_does_not_answer_is_a_condition_and_the_others_do_not_know(world, monkeypatch):
    def away():
        raise LockUnavailable("no answer")

    monkeypatch.setattr(world.lock, "look", away)
    looks = {each.name: each.look for each in conditions()}

    assert [each.subject for each in looks["beat.store_down"]()] == ["leader lock"]
    with pytest.raises(LockUnavailable):
        looks["beat.no_leader"]()
