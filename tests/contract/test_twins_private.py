"""What twins touch of Celery's inside: a request's message and answers, and the pool of prefork."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from celery.concurrency.asynpool import AsynPool
from celery.worker import state
from celery.worker.consumer.consumer import Consumer
from celery.worker.request import Request
from kombu.asynchronous.timer import Timer
from kombu.common import QoS

from hardening.leases.consumer import hardened_consumer
from hardening.leases.terms import Lease
from hardening.private import celery_version
from hardening.twins.adoption import adopt
from hardening.twins.keeping import running_kept
from hardening.twins.watch import twins_for
from tests.helpers.hardened_apps import hardened_app, request_of, run, send
from tests.helpers.twin_messages import Message, amqp_channel

pytestmark = pytest.mark.usefixtures("isolated", "recording")


def consumer() -> Any:
    return SimpleNamespace(
        call_soon=lambda function, *args: function(*args),
        qos=None,
        max_prefetch_count=1,
        prefetch_multiplier=1,
    )


@pytest.mark.parametrize("fails", [False, True])
def test_a_request_that_adopted_a_message_answers_for_it_and_for_no_other(fails: bool) -> None:
    app = hardened_app()

    @app.task(shared=False, bind=True)
    def work(self):
        adopt(request, second, consumer())
        if fails:
            raise ValueError("no")

    request = request_of(app, send(work))
    second = send(work)
    first = request.message

    assert run(request) == [], "not on the old message"
    assert second.acknowledged
    assert not first.acknowledged
    assert request.message is second


def test_a_rejection_goes_to_the_adopted_message() -> None:
    app = hardened_app()

    @app.task(shared=False)
    def work(): ...

    request, second = request_of(app, send(work)), send(work)
    adopt(request, second, consumer())
    request.reject(requeue=False)

    assert request.answers.given == []
    assert second._state == "REJECTED"


def test_celery_notes_what_runs_and_what_succeeded() -> None:
    app = hardened_app()

    @app.task(shared=False)
    def work(): ...

    request = request_of(app, send(work))
    assert state.requests[request.id] is request
    assert request in state.reserved_requests
    run(request)
    assert request.id not in state.requests
    assert request.id in state.successful_requests
    assert request.time_start


def test_the_pool_of_prefork_is_as_we_read_it() -> None:
    source = inspect.getsource(AsynPool)
    for name in ("_fileno_to_outq", "_busy_workers", "_cache", "._write_to = proc", "_accepted", "inqW_fd"):
        assert name in source
    assert "_result_handler" in source
    forgets = "self._cache.clear()" in inspect.getsource(AsynPool.flush)
    assert forgets is (celery_version() < (5, 7))


def test_celery_cleans_up_after_it_has_told_of_a_lost_connection() -> None:
    source = inspect.getsource(Consumer.start)
    assert source.index("on_connection_error_after_connected") < source.index("self.on_close()")
    assert "ensure_connection(" in inspect.getsource(Consumer.ensure_connected)
    message: Any = vars(Request)["message"]
    assert "_message" in inspect.getsource(message.fget)


def test_what_celery_drops_with_its_connection_stays_in_no_list() -> None:
    app = hardened_app()

    @app.task(shared=False)
    def work(): ...

    request = request_of(app, send(work))
    processes = SimpleNamespace(_busy_workers=set(), _cache={}, _on_soft_timeout=0, _on_hard_timeout=0)
    pool = SimpleNamespace(_pool=processes, flush=lambda: None)
    consumer: Any = SimpleNamespace(controller=None, timer=Timer(), task_buckets={}, pool=pool)

    with running_kept(consumer):
        Consumer.on_close(consumer)

    assert request.id not in state.requests
    assert request not in state.reserved_requests


def reconnected(app: Any, *, most: int, now: int) -> Any:
    """A consumer that takes fewer messages than before, as Celery's does after a lost connection."""
    kind = hardened_consumer(Consumer, lease=Lease(), holder="a worker", leased=False)
    found = kind.__new__(kind)
    found.app = app
    found.timer = Timer()
    found.pool = SimpleNamespace(num_processes=most)
    found.prefetch_multiplier = 1
    found.qos = QoS(lambda prefetch_count: None, now)
    found.task_consumer = SimpleNamespace(channel=amqp_channel())
    found._maximum_prefetch_restored = False
    return found


@pytest.mark.parametrize("lent", [0, 1, 3, 5])
def test_credits_that_were_lent_are_not_among_those_that_come_back(lent: int) -> None:
    consumer = reconnected(hardened_app(), most=4, now=1)
    held = twins_for(consumer.app).held
    messages = [Message(consumer.task_consumer.channel, str(number)) for number in range(lent)]
    for message in messages:
        held.hold(SimpleNamespace(message=message, consumer=consumer))
    assert consumer.qos.value == 1 + lent

    # Celery lets an acknowledgement restore a credit on the same condition.
    while not consumer._maximum_prefetch_restored and consumer._new_prefetch_count <= 4:
        consumer._restore_prefetch_count_after_connection_restart(None)

    assert (consumer.qos.value, consumer.initial_prefetch_count) == (4 + lent, 4)
    assert consumer._maximum_prefetch_restored
    for message in messages:
        held.let_go(message)
    assert consumer.qos.value == 4
    assert "self._new_prefetch_count <= self.max_prefetch_count" in inspect.getsource(
        Consumer.create_task_handler
    )
