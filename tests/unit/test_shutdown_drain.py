"""The turns of a drain: what goes back when, when it is over, and what each signal asks of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery.worker import state

from hardening.shutdown import drain as drains
from hardening.shutdown import request as requests
from hardening.shutdown.drain import (
    QUIET_TURNS,
    SETTLED_WITHIN_SECONDS,
    STUCK_AFTER_SECONDS,
    Drain,
)
from hardening.shutdown.grace import Shutdown, shutdown_of


class Message:
    def __init__(self, log: list[Any], name: str, *, refuses: bool = False) -> None:
        self._log, self._name, self._refuses = log, name, refuses
        self.acknowledged = False
        self.channel = None
        self.headers = {"id": name}

    def reject(self, requeue: bool) -> None:
        if self._refuses:
            raise ConnectionError("gone")
        assert requeue
        self.acknowledged = True
        self._log.append(self._name)


class Fake:
    """A request, as a drain sees it."""

    def __init__(self, message: Message, number: int) -> None:
        self.message, self.id, self.arrived = message, message.headers["id"], number
        self.acknowledged = self.has_begun = self.is_given_back = False
        self.was_cut = self.is_abandoned = False
        self.let_gos = 0
        self._apply_result = None

    def claim_for_return(self) -> bool:
        if self.has_begun or self.is_given_back:
            return False
        self.is_given_back = True
        return True

    def let_go(self) -> None:
        self.let_gos += 1

    def run(self) -> None:
        self.has_begun = True
        state.active_requests.add(self)

    def end(self, *, told: bool = True) -> None:
        state.active_requests.discard(self)
        self.acknowledged = True
        self.message.acknowledged = told


class Hands:
    def __init__(self, *, cuts: bool = True) -> None:
        self.cuts, self.starts_for_sure = cuts, False
        self.cut_ones: list[Any] = []
        self.abandoned = 0

    def cut(self, request: Any) -> None:
        self.cut_ones.append(request)

    def abandon(self, worker: Any) -> None:
        self.abandoned += 1

    def kill(self) -> None: ...


class Tasks:
    on_message: Any = None
    cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1


class Consumer:
    """Connected to a broker that is not RabbitMQ."""

    def __init__(self) -> None:
        self.task_consumer = Tasks()
        self.connection = self
        self.transport = self
        self.driver_type = "redis"


class Scene:
    def __init__(self, *, cuts: bool = True) -> None:
        self.now = 0.0
        self.back: list[str] = []
        self.hands = Hands(cuts=cuts)
        self.consumer = Consumer()
        self.drain = Drain(worker=None, hands=self.hands, clock=lambda: self.now)
        self.drain.connected(self.consumer)
        self.kept: list[Fake] = []

    def request(self, name: str, **options: bool) -> Fake:
        fake = Fake(Message(self.back, name, **options), len(self.kept))
        self.kept.append(fake)
        requests.OPEN.add(fake)
        return fake

    def turns(self, count: int = 1) -> None:
        for _ in range(count):
            self.drain.turn()
            self.now += 0.1


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(state, "should_stop", None)
    requests.OPEN.clear()
    yield Scene()
    requests.OPEN.clear()
    state.active_requests.clear()


def stops_with() -> Any:
    flags: Any = state
    return flags.should_stop


def test_nothing_happens_before_anybody_asks(scene: Scene) -> None:
    scene.request("waits")
    scene.turns(3)

    assert scene.back == []
    assert scene.consumer.task_consumer.cancelled == 0


def test_what_waits_goes_back_last_come_first_so_that_each_comes_to_the_head_of_its_queue(
    scene: Scene,
) -> None:
    for name in ("first", "second", "third"):
        scene.request(name)
    scene.drain.ask(exitcode=0, grace=None)
    scene.turns()

    assert scene.back == ["third", "second", "first"]
    assert [fake.let_gos for fake in scene.kept] == [1, 1, 1]
    assert scene.consumer.task_consumer.cancelled == 1


def test_a_message_that_was_on_its_way_is_refused(scene: Scene) -> None:
    scene.drain.ask(exitcode=0, grace=None)
    scene.turns()
    scene.consumer.task_consumer.on_message(Message(scene.back, "late"))
    scene.turns()

    assert scene.back == ["late"]


def test_celery_stops_only_when_nothing_runs_and_its_loop_had_a_turn_to_acknowledge(scene: Scene) -> None:
    running = scene.request("runs")
    running.run()
    scene.drain.ask(exitcode=7, grace=None)
    scene.turns(50)
    assert stops_with() is None
    assert scene.back == []

    running.end()
    scene.turns(QUIET_TURNS - 1)
    assert stops_with() is None
    scene.turns()
    assert stops_with() == 7
    assert scene.drain.finished


def test_celery_does_not_stop_before_the_broker_was_told_of_what_ended(scene: Scene) -> None:
    running = scene.request("runs")
    running.run()
    scene.drain.ask(exitcode=0, grace=None)
    scene.turns()
    running.end(told=False)
    scene.turns(QUIET_TURNS + 3)
    assert stops_with() is None

    running.message.acknowledged = True
    scene.turns()
    assert stops_with() == 0


def test_celery_stops_although_the_broker_is_never_told(scene: Scene) -> None:
    running = scene.request("runs")
    running.run()
    scene.drain.ask(exitcode=0, grace=None)
    scene.turns()
    running.end(told=False)
    scene.turns(int(SETTLED_WITHIN_SECONDS * 10) + 3)
    assert stops_with() == 0


def test_what_runs_at_the_end_is_cut_and_goes_back_only_after_it_ended(scene: Scene) -> None:
    running = scene.request("runs")
    running.run()
    scene.drain.ask(exitcode=0, grace=1.0)
    scene.turns(8)
    assert scene.hands.cut_ones == []

    scene.turns(5)
    assert running.was_cut
    assert scene.back == []

    state.active_requests.discard(running)
    scene.drain.cut_short(running)
    scene.turns(3)
    assert scene.back == ["runs"]
    assert scene.hands.abandoned == 0
    assert stops_with() == 0


def test_what_does_not_end_when_it_is_cut_is_left_behind(scene: Scene) -> None:
    running = scene.request("runs")
    running.run()
    scene.drain.ask(exitcode=0, grace=1.0)
    scene.turns(int((1 + STUCK_AFTER_SECONDS) * 10) + 6)

    assert scene.back == ["runs"]
    assert running.acknowledged, "whatever it still does, it acknowledges nothing"
    assert scene.hands.abandoned == 1
    assert stops_with() == 0


def test_what_cannot_be_cut_is_left_behind_at_once(scene: Scene) -> None:
    threads = Scene(cuts=False)
    running = threads.request("runs")
    running.run()
    threads.drain.ask(exitcode=0, grace=1.0)
    threads.turns(16)

    assert threads.back == ["runs"]
    assert threads.hands.abandoned == 1


def test_a_broker_that_refuses_does_not_keep_the_worker_from_ending(scene: Scene) -> None:
    scene.request("waits", refuses=True)
    scene.drain.ask(exitcode=0, grace=None)
    scene.turns(4)

    assert scene.back == []
    assert stops_with() == 0


def test_without_a_connection_celery_is_told_to_stop_at_once(scene: Scene) -> None:
    scene.request("runs").run()
    assert scene.drain.ask(exitcode=0, grace=None)
    scene.turns()
    scene.drain.disconnected()
    assert stops_with() == 0


def test_a_worker_that_is_not_connected_is_left_to_celery(scene: Scene) -> None:
    scene.drain.disconnected()
    assert not scene.drain.ask(exitcode=0, grace=None)


def test_a_second_signal_can_only_hurry(scene: Scene) -> None:
    scene.drain.ask(exitcode=0, grace=None)
    scene.drain.ask(exitcode=1, grace=5.0)
    assert (scene.drain.deadline, scene.drain.exitcode) == (5.0, 1)
    scene.drain.ask(exitcode=0, grace=60.0)
    assert (scene.drain.deadline, scene.drain.exitcode) == (5.0, 1)


def test_sources_hand_over_what_they_keep(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [Fake(Message(scene.back, "parked"), 0)]
    monkeypatch.setattr(drains, "SOURCES", [lambda: [kept.pop() for _ in list(kept)]])
    scene.drain.ask(exitcode=0, grace=None)
    scene.turns(2)

    assert scene.back == ["parked"]


@pytest.mark.parametrize(
    ("raw", "seconds"), [({}, None), ({"GRACE": None}, None), ({"GRACE": "25 s"}, 25.0), ({"GRACE": 0}, 0.0)]
)
def test_the_grace_period_is_read(raw: dict[str, Any], seconds: float | None) -> None:
    assert shutdown_of(raw) == (Shutdown(grace=seconds), [])


def test_a_grace_period_that_is_no_duration_is_a_finding() -> None:
    rules, findings = shutdown_of({"GRACE": "a while"})
    assert rules == Shutdown()
    assert [finding.code for finding in findings] == ["CH019"]
