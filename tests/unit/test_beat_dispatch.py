"""Dispatch: what is sent, marked, tried again and given up. The store is in memory, the broker a list."""

from __future__ import annotations

import pytest

from beat_leader.dispatch import BrokerAway, Dispatch, Job, OwnFault
from beat_leader.entry import Entry, Policy
from beat_leader.message import options_of
from beat_leader.stores.memory import Ticks
from beat_leader.ticks import Decision, OldEpoch, State, TicksUnavailable, task_id_for
from hardening.core.identity import BEAT_HEADER, SUPERSEDED_HEADER, TWIN_HEADER

EPOCH = 3
DUE = 1_000_000


class World:
    """A clock that stands until it is moved, and a broker that takes or refuses."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.took = 0.0
        self.down = False
        self.trusted = True
        self.sent: list[tuple[str, int]] = []
        self.ticks = Ticks()
        self.ticks.open_term(EPOCH)
        self.dispatch = self.beat()

    def beat(self) -> Dispatch:
        return Dispatch(self.ticks, self.publish, now_ms=self.now_ms, clock=lambda: self.seconds)

    def now_ms(self) -> int:
        return DUE + int(self.seconds * 1000)

    def publish(self, job: Job) -> None:
        self.seconds += self.took
        if self.down:
            raise BrokerAway("the broker is down")
        self.sent.append(job.key)

    def decide(self, *names: str, until_ms: int = DUE + 60_000) -> None:
        decisions = [Decision(schedule=name, due_ms=DUE, state=State.DUE, decided_ms=DUE) for name in names]
        assert all(self.ticks.decide(EPOCH, decisions))
        for name in names:
            self.dispatch.add(job(name, until_ms))

    def run(self, seconds: float = 10.0) -> int:
        return self.dispatch.run(EPOCH, lambda: self.trusted, seconds=seconds)

    def states(self) -> dict[str, State]:
        return {name: tick.state for name, tick in self.ticks.last().items()}


def job(name: str, until_ms: int = DUE + 60_000) -> Job:
    return Job(entry=Entry(name=name, task="t", when=1), due_ms=DUE, next_ms=DUE + 1000, until_ms=until_ms)


@pytest.fixture
def world():
    return World()


def test_what_was_sent_is_marked(world) -> None:
    world.decide("a", "b")

    assert world.run() == 2
    assert world.sent == [("a", DUE), ("b", DUE)]
    assert set(world.states().values()) == {State.SENT}
    assert world.dispatch.take_sent() == {"a": (DUE, 1), "b": (DUE, 1)}


def test_nothing_is_sent_once_the_term_is_not_trusted(world) -> None:
    world.decide("a", "b")
    plain = world.publish

    def publish_and_lose(job: Job) -> None:
        plain(job)
        world.trusted = False

    world.dispatch._publish = publish_and_lose

    assert world.run() == 1
    assert world.states() == {"a": State.SENT, "b": State.DUE}


def test_a_failed_publish_is_tried_again_until_it_succeeds(world) -> None:
    world.decide("a")
    world.down = True
    world.run()
    assert world.states() == {"a": State.DUE}
    assert "the broker is down" in world.dispatch.problem
    assert world.dispatch.wait_seconds() == pytest.approx(0.5)

    world.down = False
    assert world.run() == 0  # It waits.
    world.seconds += 0.5
    assert world.run() == 1
    assert world.states() == {"a": State.SENT}
    assert world.dispatch.problem == ""


def test_what_could_not_be_sent_in_its_time_is_missed_with_the_error(world) -> None:
    world.decide("a", until_ms=DUE + 1000)
    world.down = True
    world.run()
    world.seconds += 2
    world.run()

    tick = world.ticks.last()["a"]
    assert tick.state is State.MISSED
    assert "the broker is down" in tick.why
    assert world.dispatch.wait_seconds() is None


def test_a_broker_that_is_away_holds_up_a_tick_once_and_not_for_each_message(world) -> None:
    world.decide("a", "b", "c")
    world.down, world.took = True, 2.0

    world.run()

    assert world.seconds == pytest.approx(2.0)


def test_due_times_are_sent_in_their_order_when_the_broker_is_back(world) -> None:
    world.decide("a")
    world.down = True
    world.run()
    world.decide("b")
    world.down = False
    world.seconds += 0.5
    world.run()

    assert [name for name, _ in world.sent] == ["a", "b"]


def test_a_message_that_cannot_be_sent_holds_up_no_other_and_tells_no_secret(world, caplog) -> None:
    world.decide("bad", "b")
    plain = world.publish

    def publish(job: Job) -> None:
        if job.entry.name == "bad":
            raise TypeError("amqp://ann:secret@host is not serializable")
        plain(job)

    world.dispatch._publish = publish
    world.run()

    assert world.states() == {"bad": State.DUE, "b": State.SENT}
    assert "bad" in caplog.text
    assert "secret" not in caplog.text + world.dispatch._heap[0][-1].problem


def test_messages_that_nobody_can_write_make_no_other_wait(world) -> None:
    bad = [f"a{number}" for number in range(9)]
    world.decide(*bad, "z")
    plain = world.publish

    def publish(job: Job) -> None:
        world.seconds += 1.0
        if job.entry.name in bad:
            raise OwnFault("nobody can write it")
        plain(job)

    world.dispatch._publish = publish
    world.run(seconds=9.5)

    assert world.states() == {**dict.fromkeys(bad, State.DUE), "z": State.SENT}


def test_what_was_sent_and_could_not_be_marked_is_not_sent_again_by_the_same_beat(world, monkeypatch) -> None:
    world.decide("a")

    def away(*_: object) -> None:
        raise TicksUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(world.ticks, "sent", away)
        with pytest.raises(TicksUnavailable):
            world.run()

    world.dispatch.begin()
    for tick in world.ticks.unfinished():
        world.dispatch.add(job(tick.schedule))
    world.run()

    assert world.sent == [("a", DUE)]
    assert world.states() == {"a": State.SENT}


def test_an_old_leader_is_refused_when_it_marks(world) -> None:
    world.decide("a")
    world.ticks.open_term(EPOCH + 1)

    with pytest.raises(OldEpoch):
        world.run()


def test_a_schedule_that_is_gone_is_not_sent(world) -> None:
    world.decide("a", "b")

    world.dispatch.drop(EPOCH, ["a"], "gone")
    world.run()

    assert world.states() == {"a": State.MISSED, "b": State.SENT}


def test_marks_are_written_in_small_batches_while_many_wait(world, monkeypatch) -> None:
    batches: list[int] = []
    plain = world.ticks.sent

    def sent(epoch: int, ticks: list[tuple[str, int]], now_ms: int) -> None:
        batches.append(len(ticks))
        plain(epoch, ticks, now_ms)

    monkeypatch.setattr(world.ticks, "sent", sent)
    world.decide(*(f"s{number}" for number in range(50)))
    world.run()

    assert batches == [20, 20, 6, 1, 1, 1, 1]  # At once, where no more than a few wait.


def test_a_message_is_the_same_whoever_sends_it() -> None:
    entry = Entry(name="a", task="t", when=1, options={"queue": "q", "headers": {"x": 1}})

    options = options_of(entry, due_ms=DUE, next_ms=DUE + 60_000, now=DUE / 1000 + 0.1)

    task_id = task_id_for("a", DUE)
    assert options["task_id"] == task_id
    assert options["queue"] == "q"
    assert options["headers"] == {
        "x": 1,
        "celery_beat_task": True,
        "periodic_task_name": "a",
        TWIN_HEADER: f"beat {task_id}",
        BEAT_HEADER: f"{DUE} a",
        SUPERSEDED_HEADER: 1,
    }
    assert entry.options == {"queue": "q", "headers": {"x": 1}}
    assert options == options_of(entry, due_ms=DUE, next_ms=DUE + 60_000, now=DUE / 1000 + 3)


@pytest.mark.parametrize(
    ("late", "expires"),
    [(0.0, 60.0), (59.5, 119.5), (3600.0, 3660.0)],
    ids=["at-the-next-due-time", "not-within-a-second", "late-ones-have-an-interval"],
)
def test_a_message_expires_at_the_next_due_time_or_after_an_interval(late, expires) -> None:
    entry = Entry(name="a", task="t", when=1)

    options = options_of(entry, due_ms=DUE, next_ms=DUE + 60_000, now=DUE / 1000 + late)

    assert options["expires"].timestamp() == pytest.approx(DUE / 1000 + expires)


def test_an_expiry_of_its_own_or_none_at_all_is_kept() -> None:
    own = Entry(name="a", task="t", when=1, options={"expires": 5})
    none = Entry(name="a", task="t", when=1, policy=Policy(expires=False))

    assert options_of(own, due_ms=DUE, next_ms=DUE + 1, now=0)["expires"] == 5
    assert "expires" not in options_of(none, due_ms=DUE, next_ms=DUE + 1, now=0)
