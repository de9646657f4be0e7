"""A start is refused only if a success is recorded or the work is running; every other copy starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker import state

from hardening.core.identity import KEY_HEADER, REPLAY_HEADER, TWIN_HEADER
from hardening.twins.figure import duplicates_of
from hardening.twins.work import Work, may_have_twin
from tests.helpers.twin_fixtures import clock, nothing_runs, store
from tests.helpers.twin_messages import (
    LEASE_SECONDS,
    Arrived,
    Clock,
    Message,
    Running,
    Switchable,
    amqp_channel,
    consumer_on,
    redis_channel,
    twins_of,
)

__all__ = ["clock", "nothing_runs", "store"]  # Fixtures.


class Worker:
    """Two of them are two workers, on one broker and one store."""

    def __init__(self, store: Switchable, clock: Clock, name: str = "w1@host", channel: Any = None) -> None:
        self.twins = twins_of(store, clock, name)
        self.channel = channel or redis_channel("1", "2", "3")
        self.consumer = consumer_on(self.channel)

    def arrive(self, message: Message | None = None, **options: Any) -> Arrived:
        message = message or Message(self.channel, **options)
        arrival = Arrived(message, self.consumer, self.twins)
        arrival.proceed()
        return arrival

    def run(self, message: Message, **options: Any) -> Running:
        """What Celery makes of a message that has started here."""
        request: Any = Running(message, self.twins, **options)
        if may_have_twin(message):
            request.twin = self.twins.begin(request)
        state.task_reserved(request)
        state.task_accepted(request)
        return request  # type: ignore[no-any-return]


def ended(request: Any, *, success: bool = True) -> None:
    state.task_ready(request)
    request.end(success=success)


def test_an_ordinary_message_has_no_twin_and_pays_nothing(store: Switchable, clock: Clock) -> None:
    worker = Worker(store, clock)
    message = Message(worker.channel, delivery_info={})

    assert not may_have_twin(message)
    ended(worker.run(message))
    worker.twins.renew()
    worker.twins.held.ask_again()
    assert store.asked == 0


@pytest.mark.parametrize(
    "told",
    [
        {"delivery_info": {"redelivered": True}},
        {"headers": {"id": "an id", "redelivered": True}},
        {"headers": {"id": "an id", KEY_HEADER: "a key", REPLAY_HEADER: 1}},
        {"headers": {"id": "an id", TWIN_HEADER: True}},
    ],
)
def test_redelivered_messages_replays_and_their_retries_may_have_a_twin(told: dict[str, Any]) -> None:
    assert may_have_twin(Message(None, **{"delivery_info": {}, **told}))


def test_a_redelivered_message_starts_where_nobody_runs_it(store: Switchable, clock: Clock) -> None:
    assert Worker(store, clock).arrive().started == 1


def test_a_copy_waits_for_the_one_that_runs_and_is_not_run_after_its_success(
    store: Switchable, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="hardening")
    first, second = Worker(store, clock, "w1@host"), Worker(store, clock, "w2@host")
    running = first.run(first.arrive().message)
    state.reset_state()  # The other worker is another process.

    copy = second.arrive()
    for _ in range(20):
        clock.now += 4.0
        first.twins.renew()
        second.twins.held.ask_again()
    assert (copy.started, copy.acknowledged) == (0, 0)
    assert second.consumer.qos.value == 2
    assert caplog.text.count("is held back") == 1

    ended(running)
    clock.now += 4.0
    second.twins.held.ask_again()

    assert (copy.started, copy.acknowledged) == (0, 1)
    assert second.consumer.qos.value == 1
    assert len(second.twins.held) == 0
    assert "is not run again, it succeeded in w1@host" in caplog.text
    second.twins.renew()
    assert [(each.task, each.not_run, each.ran_again) for each in duplicates_of(store)] == [("a task", 1, 0)]


@pytest.mark.parametrize("end", ["fails", "dies"])
def test_a_copy_runs_when_the_first_start_came_to_nothing(store: Switchable, clock: Clock, end: str) -> None:
    first, second = Worker(store, clock, "w1@host"), Worker(store, clock, "w2@host")
    running = first.run(first.arrive().message)
    state.reset_state()
    copy = second.arrive()
    assert copy.started == 0

    if end == "fails":
        ended(running, success=False)
        clock.now += 4.0
    else:
        clock.now += LEASE_SECONDS + 0.1
    second.twins.held.ask_again()

    assert (copy.started, copy.acknowledged) == (1, 0)


def test_a_copy_waits_for_a_request_of_its_own_worker_whatever_the_store_says(
    store: Switchable, clock: Clock
) -> None:
    store.down = True
    worker = Worker(store, clock)
    running = worker.run(Message(worker.channel, delivery_info={}))
    copy = worker.arrive(delivery_tag="2")
    assert copy.started == 0

    ended(running)
    clock.now += 4.0
    worker.twins.held.ask_again()

    assert (copy.started, copy.acknowledged) == (0, 1), "this worker knows its own successes"


@pytest.mark.parametrize("call", range(1, 7))
def test_a_copy_that_arrives_while_the_store_is_asked_about_another_waits(
    store: Switchable, clock: Clock, call: int
) -> None:
    """As on gevent, where the main loop receives one while a greenlet asks again about one that is held."""
    dead, worker = Worker(store, clock), Worker(store, clock)
    dead.arrive()
    clock.now += LEASE_SECONDS + 0.1
    copies: list[Arrived] = []
    store.meanwhile(call, lambda: copies.append(worker.arrive(delivery_tag="2")))

    first = worker.arrive()

    assert (first.started, copies[0].started) == (1, 0)
    ended(worker.run(first.message))
    clock.now += 4.0
    worker.twins.held.ask_again()
    assert (copies[0].started, copies[0].acknowledged) == (0, 1)


@pytest.mark.parametrize("is_made", [False, True])
def test_a_copy_waits_for_a_message_of_its_own_worker_whose_request_celery_does_not_list(
    store: Switchable, clock: Clock, is_made: bool
) -> None:
    worker = Worker(store, clock)
    first = worker.arrive()
    request: Any = Running(first.message, worker.twins)
    request.time_start = None
    if is_made:  # And waits for its time, or its rate: longer than one is waited for that is not made.
        request.twin = worker.twins.begin(request)
        clock.now += 60.0

    copy = worker.arrive(delivery_tag="2")
    assert copy.started == 0

    del request
    clock.now += 6.0
    worker.twins.held.ask_again()
    assert copy.started == 1, "no request came of it, or it was dropped"


def test_a_copy_that_arrives_while_the_mark_is_given_up_starts_later_with_a_mark(
    store: Switchable, clock: Clock
) -> None:
    worker = Worker(store, clock)
    request = worker.run(worker.arrive().message)
    copies: list[Arrived] = []
    store.meanwhile(2, lambda: copies.append(worker.arrive(delivery_tag="2")))

    ended(request, success=False)

    assert copies[0].started == 0
    clock.now += 4.0
    worker.twins.held.ask_again()
    assert copies[0].started == 1
    assert Worker(store, clock).arrive().started == 0


@pytest.mark.parametrize("call", [1, 2])
def test_the_mark_of_a_dropped_request_is_not_given_up_while_the_next_one_takes_it(
    store: Switchable, clock: Clock, call: int
) -> None:
    worker = Worker(store, clock)
    dropped = worker.run(worker.arrive().message)
    state.reset_state()
    del dropped
    store.meanwhile(call, worker.twins.renew)

    running = worker.run(worker.arrive(delivery_tag="2").message)

    worker.twins.renew()
    state.reset_state()
    assert Worker(store, clock).arrive().started == 0
    assert not running.acknowledged


def test_other_work_under_the_same_id_is_no_copy(store: Switchable, clock: Clock) -> None:
    worker = Worker(store, clock)
    ended(worker.run(worker.arrive().message))

    assert worker.arrive(body=b"[[2], {}, {}]", delivery_tag="2").started == 1
    replay = {"id": "another", KEY_HEADER: "an id", REPLAY_HEADER: 1}
    assert worker.arrive(headers=replay, delivery_tag="3").started == 1
    assert worker.arrive(delivery_tag="2").acknowledged == 1


def test_the_second_success_is_a_duplicate_with_both_workers_in_the_log(
    store: Switchable, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Worker(store, clock, "w1@host"), Worker(store, clock, "w2@host")
    slow = first.run(Message(first.channel, delivery_info={}))
    taken_over = second.run(second.arrive().message)

    first.twins.on_lost(slow.message)
    ended(taken_over)
    ended(slow)

    assert "is a duplicate: it succeeded here, and before in w2@host" in caplog.text
    assert "(here: w1@host" in caplog.text
    assert [(each.not_run, each.ran_again) for each in duplicates_of(store)] == [(0, 1)]


def test_a_running_task_that_lost_its_lease_holds_copies_back(store: Switchable, clock: Clock) -> None:
    first, second = Worker(store, clock), Worker(store, clock)
    slow = first.run(Message(first.channel, delivery_info={}))
    first.twins.on_lost(slow.message)
    state.reset_state()

    copy = second.arrive()
    assert copy.started == 0
    ended(slow)
    clock.now += 4.0
    second.twins.held.ask_again()
    assert copy.acknowledged == 1


def test_a_success_that_was_acknowledged_late_is_recorded_and_a_failure_is_not(
    store: Switchable, clock: Clock
) -> None:
    first, second = Worker(store, clock), Worker(store, clock)
    message = Message(first.channel, delivery_info={})
    first.twins.on_late_ack(message)
    ended(second.run(second.arrive().message), success=False)

    request: Any = first.run(message)
    state.task_ready(request, successful=True)
    request.end()
    first.twins.on_late_ack(message)

    assert Worker(store, clock).arrive().acknowledged == 1


def test_a_retry_is_no_success_and_tells_its_next_attempt_of_the_twin(
    store: Switchable, clock: Clock
) -> None:
    first, second = Worker(store, clock), Worker(store, clock)
    running = first.run(first.arrive().message)
    assert running.request_dict[TWIN_HEADER] is True
    ended(running, success=False)

    copy = second.arrive()
    assert copy.started == 1
    ended(second.run(copy.message), success=False)
    headers = {"id": "an id", "task": "a task", "retries": 1, TWIN_HEADER: True}
    again = first.arrive(headers=headers, delivery_info={})
    assert again.started == 1
    ended(first.run(again.message))

    other = second.arrive(headers=dict(headers), delivery_info={}, delivery_tag="2")
    assert other.acknowledged == 1, "a success at any attempt refuses all that start later"


def test_a_mark_goes_with_a_request_that_the_pool_dropped(store: Switchable, clock: Clock) -> None:
    first, second = Worker(store, clock), Worker(store, clock)
    arrival = first.arrive()
    running = first.run(arrival.message)
    assert second.arrive().started == 0

    state.reset_state()
    del running
    clock.now += 4.0
    first.twins.renew()

    assert second.arrive(delivery_tag="2").started == 1


def test_the_mark_of_a_dropped_request_goes_over_to_the_next_one(store: Switchable, clock: Clock) -> None:
    first, second = Worker(store, clock), Worker(store, clock)
    dropped = first.run(first.arrive().message)
    state.reset_state()
    del dropped
    request = first.run(first.arrive(delivery_tag="2").message)
    state.reset_state()
    for _ in range(10):
        clock.now += 4.0
        first.twins.renew()

    assert second.arrive().started == 0
    ended(request, success=False)
    assert second.arrive(delivery_tag="2").started == 1


def test_a_mark_goes_with_a_message_that_celery_made_no_request_of(store: Switchable, clock: Clock) -> None:
    first, second = Worker(store, clock), Worker(store, clock)
    first.arrive()
    for _ in range(3):
        clock.now += 4.0
        first.twins.renew()

    assert second.arrive().started == 1


def test_a_store_that_is_down_starts_everything(store: Switchable, clock: Clock) -> None:
    store.down = True
    assert Worker(store, clock).arrive().started == 1
    assert Worker(store, clock).arrive().started == 1


def test_a_copy_waits_for_a_store_that_is_the_redis_which_keeps_its_lease(
    store: Switchable, clock: Clock
) -> None:
    def key_on_broker(key: str, global_prefix: str) -> str:
        return f"{global_prefix}{key}"

    store.key_on_broker = key_on_broker  # type: ignore[attr-defined]
    worker = Worker(store, clock)
    worker.channel.holdings = SimpleNamespace(is_ours=lambda tag: True)
    store.down = True
    copy = worker.arrive()
    assert copy.started == 0

    store.down = False
    clock.now += 6.0
    worker.twins.held.ask_again()
    assert copy.started == 1


def test_held_copies_are_handed_over_to_a_drain_and_held_no_more(store: Switchable, clock: Clock) -> None:
    first, second = Worker(store, clock), Worker(store, clock)
    first.run(first.arrive().message)
    state.reset_state()
    copy = second.arrive()

    assert [(kept.id, kept.message) for kept in second.twins.held.hand_over()] == [("an id", copy.message)]

    clock.now += 60.0
    second.twins.held.ask_again()
    assert (copy.started, copy.acknowledged, len(second.twins.held)) == (0, 0, 0)


def test_a_mark_that_could_not_be_had_is_tried_again(store: Switchable, clock: Clock) -> None:
    store.down = True
    first, second = Worker(store, clock), Worker(store, clock)
    request = first.run(first.arrive().message)
    assert request.twin is not None
    state.reset_state()
    store.down = False
    clock.now += 6.0
    first.twins.renew()

    assert second.arrive().started == 0


def test_a_mark_that_could_not_be_given_up_is_given_up_later(store: Switchable, clock: Clock) -> None:
    first, second = Worker(store, clock), Worker(store, clock)
    other = first.run(first.arrive(body=b"[[7], {}, {}]", delivery_tag="2").message)
    request = first.run(first.arrive().message)
    store.down = True
    ended(request, success=False)
    state.reset_state()
    store.down = False
    clock.now += 6.0
    first.twins.renew()

    assert not other.acknowledged, "the worker lives and has other marks"
    assert second.arrive().started == 1


def test_a_held_message_that_is_ours_no_longer_is_forgotten(store: Switchable, clock: Clock) -> None:
    first = Worker(store, clock)
    second = Worker(store, clock)
    request = first.run(first.arrive().message)
    assert not request.acknowledged
    state.reset_state()
    copy = second.arrive()

    second.channel.qos.discard("1")
    clock.now += 4.0
    second.twins.held.ask_again()

    assert (copy.started, copy.acknowledged, len(second.twins.held)) == (0, 0, 0)
    assert second.consumer.qos.value == 1


def test_on_rabbitmq_a_held_message_dies_with_its_channel(store: Switchable, clock: Clock) -> None:
    first = Worker(store, clock)
    second = Worker(store, clock, channel=amqp_channel())
    request = first.run(first.arrive().message)
    assert not request.acknowledged
    state.reset_state()
    copy = second.arrive()

    second.channel.is_open = False
    second.consumer.qos = type(second.consumer.qos)()
    clock.now += 4.0
    second.twins.held.ask_again()

    assert (copy.started, copy.acknowledged, len(second.twins.held)) == (0, 0, 0)
    assert second.consumer.qos.value == 1, "the new connection was asked for no credit"


def test_on_a_new_connection_a_message_that_is_still_ours_has_its_credit_again(
    store: Switchable, clock: Clock
) -> None:
    first, second = Worker(store, clock), Worker(store, clock)
    request = first.run(first.arrive().message)
    assert not request.acknowledged
    state.reset_state()
    second.arrive()

    second.consumer.qos = type(second.consumer.qos)()
    for _ in range(3):
        clock.now += 4.0
        first.twins.renew()
        second.twins.held.ask_again()

    assert second.consumer.qos.value == 2


def test_a_redelivery_is_adopted_by_the_request_that_lost_its_channel(
    store: Switchable, clock: Clock
) -> None:
    old, new = amqp_channel(), amqp_channel()
    worker = Worker(store, clock, channel=old)
    request: Any = worker.run(Message(old, delivery_info={}))
    old.is_open = False
    worker.consumer = consumer_on(new)

    copy = worker.arrive(Message(new))

    assert (copy.started, copy.acknowledged) == (0, 0)
    assert request.message is copy.message
    request._on_ack(None, ())
    request._on_reject(None, (), True)
    assert copy.message.answers == ["ack", "requeue"]
    ended(request)
    assert worker.arrive(Message(new)).acknowledged == 1, "its success is known"


def test_a_second_live_message_of_the_same_work_is_held_and_not_adopted(
    store: Switchable, clock: Clock
) -> None:
    worker = Worker(store, clock, channel=amqp_channel())
    request = worker.run(Message(worker.channel, delivery_info={}))

    copy = worker.arrive()

    assert copy.started == 0
    assert request.message is not copy.message
    assert len(worker.twins.held) == 1


def test_what_celery_dropped_with_its_connection_before_it_ran_is_no_copy(
    store: Switchable, clock: Clock
) -> None:
    old, new = amqp_channel(), redis_channel("1")
    worker = Worker(store, clock, channel=old)
    request: Any = worker.run(Message(old, delivery_info={}))
    request.time_start = None
    old.is_open = False
    worker.consumer = consumer_on(new)

    assert worker.arrive(Message(new)).started == 1


def test_the_next_attempt_is_not_adopted_by_the_one_that_is_about_to_end(
    store: Switchable, clock: Clock
) -> None:
    old, new = amqp_channel(), amqp_channel()
    worker = Worker(store, clock, channel=old)
    request = worker.run(Message(old, delivery_info={}))
    old.is_open = False
    worker.consumer = consumer_on(new)

    headers = {"id": "an id", "task": "a task", "retries": 1, TWIN_HEADER: True}
    copy = worker.arrive(Message(new, headers=headers, delivery_info={}))

    assert request.message is not copy.message
    assert len(worker.twins.held) == 1


def test_on_rabbitmq_a_success_whose_acknowledgement_was_lost_is_not_run_again(
    store: Switchable, clock: Clock
) -> None:
    worker = Worker(store, clock, channel=amqp_channel())
    ended(worker.run(Message(worker.channel, delivery_info={})))
    assert store.asked == 0

    assert worker.arrive().acknowledged == 1


def test_on_rabbitmq_a_redelivery_waits_a_moment_for_the_word_of_its_former_worker(
    store: Switchable, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="hardening")
    first = Worker(store, clock, "w1@host", channel=amqp_channel())
    second = Worker(store, clock, "w2@host", channel=amqp_channel())
    running = first.run(Message(first.channel, delivery_info={}))
    state.reset_state()
    copy, unknown = second.arrive(), second.arrive(body=b"[[7], {}, {}]", delivery_tag="2")
    assert (copy.started, unknown.started) == (0, 0)
    assert "held back" not in caplog.text

    first.twins.watch(running)
    clock.now += 1.0
    second.twins.held.ask_again()

    assert (copy.started, unknown.started) == (0, 1)
    assert caplog.text.count("is held back, for it is run by w1@host") == 1


def test_acknowledged_before_it_runs_a_task_has_not_succeeded_yet(store: Switchable, clock: Clock) -> None:
    worker = Worker(store, clock)
    running = worker.run(worker.arrive().message, acks_late=False)
    ended(running)

    assert worker.arrive(delivery_tag="2").started == 1


def test_work_of_what_any_producer_sends() -> None:
    odd = Message(None, body="text \ud800", headers={"id": None, KEY_HEADER: "\ud800", "retries": "x"})  # type: ignore[arg-type]
    assert Work.of(odd).attempt == 0
