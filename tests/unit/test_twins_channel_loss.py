"""A lost connection: what runs is marked, what has just succeeded is recorded, and connecting keeps marks."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import Ignore, Reject
from celery.worker import state

from hardening.twins import channel_loss
from hardening.twins.accepting import PATIENCE_SECONDS, take_in_accepted
from hardening.twins.work import Work, may_have_twin
from tests.helpers.hardened_apps import hardened_app, request_of, run, send
from tests.helpers.twin_fixtures import clock, nothing_runs, store
from tests.helpers.twin_messages import (
    LEASE_SECONDS,
    Clock,
    Message,
    Running,
    Switchable,
    amqp_channel,
    consumer_on,
    redis_channel,
    twins_of,
)

pytestmark = pytest.mark.usefixtures("isolated", "recording")

__all__ = ["clock", "nothing_runs", "store"]  # Fixtures.


@pytest.fixture
def worker(store: Switchable, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A worker on RabbitMQ: its twins and its consumer."""
    twins = twins_of(store, clock)
    monkeypatch.setattr(channel_loss, "twins_for", lambda app: twins)
    noted: list[str] = []
    monkeypatch.setattr(
        channel_loss,
        "note_returned",
        lambda app, messages, judged: noted.extend(each.headers["id"] for each in messages),
    )
    consumer = consumer_on(amqp_channel())
    consumer.pool = None
    consumer.app = SimpleNamespace(
        conf=SimpleNamespace(worker_cancel_long_running_tasks_on_connection_loss=False)
    )
    channel = consumer.task_consumer.channel
    return SimpleNamespace(twins=twins, consumer=consumer, channel=channel, noted=noted)


def running(worker: Any, task_id: str = "an id", *, accepted: bool = True) -> Any:
    headers = {"id": task_id, "task": "a task"}
    request: Any = Running(Message(worker.channel, headers=headers, delivery_info={}), worker.twins)
    state.task_reserved(request)
    if accepted:
        state.task_accepted(request)
    else:
        request.time_start = None
    return request


def copy_elsewhere(store: Switchable, clock: Clock, task_id: str = "an id") -> str:
    """What another worker does with the redelivery, after the moment of grace."""
    twins = twins_of(store, clock, "w2@host")
    message = Message(redis_channel("1"), headers={"id": task_id, "task": "a task"})
    state.reset_state()
    consumer = consumer_on(message.channel)
    return str(twins._judge(twins_work(message), message, consumer)[0].value)


def twins_work(message: Any) -> Work:
    return Work.of(message)


def test_what_runs_is_marked_and_what_waits_is_not(worker: Any, store: Switchable, clock: Clock) -> None:
    request = running(worker)
    waiting = running(worker, "waits", accepted=False)

    channel_loss.connection_lost(worker.consumer)

    assert request.twin.marked
    assert waiting.twin is None
    assert worker.noted == ["waits"]
    assert copy_elsewhere(store, clock) == "hold"
    assert copy_elsewhere(store, clock, "waits") == "start"


PREFORK = SimpleNamespace(_pool=SimpleNamespace(_busy_workers=set()))
THREADS = SimpleNamespace()


@pytest.mark.parametrize(
    ("pool", "reserved", "then"),
    [(PREFORK, True, "start"), (PREFORK, False, "start"), (THREADS, True, "hold"), (THREADS, False, "start")],
)
def test_what_has_not_begun_holds_nobody_back_unless_it_begins_later(
    worker: Any, store: Switchable, clock: Clock, pool: Any, reserved: bool, then: str
) -> None:
    worker.consumer.pool = pool
    message = Message(worker.channel)
    assert worker.twins._judge(Work.of(message), message, worker.consumer)[0].value == "hold"
    worker.twins.held.hold(SimpleNamespace(message=message, consumer=worker.consumer))
    assert worker.twins._judge(Work.of(message), message, worker.consumer)[0].value == "start"
    waiting: Any = Running(message, worker.twins)
    waiting.time_start = None
    waiting.twin = worker.twins.begin(waiting)
    if reserved:
        state.task_reserved(waiting)

    channel_loss.connection_lost(worker.consumer)
    for _ in range(10):
        clock.now += 4.0
        worker.twins.renew()

    assert copy_elsewhere(store, clock) == then
    assert not waiting.acknowledged, "it is still referred to"


def test_what_celery_cancels_is_left_to_others(worker: Any, store: Switchable, clock: Clock) -> None:
    request = running(worker)
    worker.consumer.app.conf.worker_cancel_long_running_tasks_on_connection_loss = True

    channel_loss.connection_lost(worker.consumer)

    assert request.twin is None
    assert worker.noted == ["an id"]
    assert copy_elsewhere(store, clock) == "start"


def test_successes_whose_acknowledgement_may_be_lost_are_told_to_all(
    worker: Any, store: Switchable, clock: Clock
) -> None:
    worker.consumer.qos.value = 2
    for number in range(3):
        request = running(worker, str(number))
        state.task_ready(request)
        request.end()
    assert store.asked == 0

    channel_loss.connection_lost(worker.consumer)

    found = [copy_elsewhere(store, clock, str(number)) for number in range(3)]
    assert found == ["start", "done", "done"], "no more than the broker may have given out"


def test_a_store_that_is_down_is_asked_once(worker: Any, store: Switchable) -> None:
    requests = [running(worker, str(number)) for number in range(20)]
    store.down = True

    channel_loss.connection_lost(worker.consumer)

    assert store.asked == 1
    assert all(request.twin is not None for request in requests), "this worker knows them all the same"


def test_marks_are_kept_while_the_broker_is_tried(worker: Any, store: Switchable, clock: Clock) -> None:
    request = running(worker)
    channel_loss.connection_lost(worker.consumer)
    asked: list[int] = []

    class Connection:
        def ensure_connection(self, *args: Any, callback: Any = None, **options: Any) -> Any:
            for _ in range(60):
                clock.now += 1.0
                callback()
            return self

    connection = channel_loss.marks_kept_while_connecting(Connection(), worker.consumer.app)
    assert connection.ensure_connection(None, 3, callback=lambda: asked.append(1)) is not None

    assert len(asked) == 60
    assert not request.acknowledged
    assert copy_elsewhere(store, clock) == "hold"
    clock.now += LEASE_SECONDS + 1
    assert copy_elsewhere(store, clock) == "start"


def test_the_answers_of_children_are_read_before_their_jobs_are_dropped() -> None:
    heard, told = os.pipe()
    try:
        job = SimpleNamespace(_accepted=False, _write_to=SimpleNamespace(outqR_fd=heard))

        def answer(fd: int) -> None:
            os.read(fd, 1)
            job._accepted = True

        os.write(told, b"x")
        take_in_accepted(pool_of({heard: None}, {1: job}, answer))
        assert job._accepted
    finally:
        os.close(heard)
        os.close(told)


def test_a_child_that_does_not_answer_is_not_waited_for_long() -> None:
    heard, told = os.pipe()
    try:
        job = SimpleNamespace(_accepted=False, _write_to=SimpleNamespace(outqR_fd=heard))
        began = time.monotonic()
        take_in_accepted(pool_of({heard: None}, {1: job}, lambda fd: None))
        assert time.monotonic() - began < 10 * PATIENCE_SECONDS
    finally:
        os.close(heard)
        os.close(told)


@pytest.mark.parametrize("pool", [None, SimpleNamespace(), SimpleNamespace(_pool=SimpleNamespace())])
def test_other_pools_have_no_answers_to_read(pool: Any) -> None:
    take_in_accepted(pool)


def pool_of(outqueues: Any, jobs: Any, answer: Any) -> Any:
    handler = SimpleNamespace(handle_event=answer)
    return SimpleNamespace(
        _pool=SimpleNamespace(_fileno_to_outq=outqueues, _cache=jobs, _result_handler=handler)
    )


def endings(app: Any) -> dict[str, Any]:
    def raising(exc: BaseException) -> Any:
        raise exc

    return {
        "success": lambda: 1,
        "failure": lambda: raising(ValueError("no")),
        "ignored": lambda: raising(Ignore()),
        "rejected": lambda: raising(Reject("no", requeue=False)),
    }


@pytest.mark.parametrize("ending", ["success", "failure", "ignored", "rejected"])
def test_only_a_success_is_recorded_and_before_the_acknowledgement(
    monkeypatch: pytest.MonkeyPatch, store: Switchable, clock: Clock, ending: str
) -> None:
    app = hardened_app()
    twins = twins_of(store, clock)
    monkeypatch.setattr("hardening.request.twins_for", lambda app: twins)

    @app.task(shared=False)
    def work():
        return endings(app)[ending]()

    message = send(work)
    message.delivery_info["redelivered"] = True
    assert may_have_twin(message)
    request = request_of(app, message)
    known_at_ack: list[bool] = []
    request._on_ack = lambda *_: known_at_ack.append(twins_work(message) in twins.successes)

    run(request)

    success = twins._records.success_of(twins_work(message))
    assert (success is not None) is (ending == "success")
    assert known_at_ack == ([] if ending == "rejected" else [ending == "success"])
    assert twins._watched == {}


def test_a_request_whose_channel_is_gone_ends_without_an_acknowledgement(
    monkeypatch: pytest.MonkeyPatch, store: Switchable, clock: Clock
) -> None:
    app = hardened_app()
    twins = twins_of(store, clock)
    monkeypatch.setattr("hardening.request.twins_for", lambda app: twins)

    @app.task(shared=False)
    def work():
        return 1

    message = send(work)
    message.channel = amqp_channel()
    request = request_of(app, message)
    message.channel.is_open = False

    assert run(request) == []
    assert request.acknowledged
    assert twins_work(message) in twins.successes
