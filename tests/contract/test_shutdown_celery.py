"""What a drain relies on in Celery and kombu, beside the symbols' existence."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Iterator
from typing import Any

import celery.apps.worker
import pytest
from celery.concurrency import gevent, prefork, solo, thread
from celery.worker import request, state
from celery.worker.worker import WorkController
from kombu import messaging
from kombu.transport import redis

apps: Any = celery.apps.worker
requests: Any = request
pools: Any = solo
controller: Any = WorkController


@pytest.fixture
def sigterm() -> Iterator[int]:
    before = signal.getsignal(signal.SIGTERM)
    yield signal.SIGTERM
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("how", "flag"), [("Warm", "should_stop"), ("Cold", "should_terminate")])
def test_a_handler_is_named_after_its_shutdown_and_only_sets_a_flag(
    sigterm: int, monkeypatch: pytest.MonkeyPatch, how: str, flag: str
) -> None:
    monkeypatch.setattr(state, "should_stop", None)
    monkeypatch.setattr(state, "should_terminate", None)
    worker: Any = type("W", (), {"hostname": "w"})
    apps._shutdown_handler(worker, sig="SIGTERM", how=how, exitcode=3)
    handler: Any = signal.getsignal(sigterm)

    assert handler.__name__ == f"worker_{how}"
    handler(sigterm, None)
    assert getattr(state, flag) == 3


def test_a_request_asks_whether_it_is_revoked_before_its_pool_gets_it() -> None:
    source = inspect.getsource(requests.create_request_cls)

    assert source.index("if self.revoked():") < source.index("apply_async(\n")
    assert "TaskRevokedError" in inspect.getsource(controller._process_task)


def test_threads_and_greenlets_accept_before_they_begin() -> None:
    begun = []

    def refuse(pid: int, at: float) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        pools.apply_target(lambda: begun.append(1), accept_callback=refuse)

    assert begun == []
    for pool in (thread, gevent):
        assert "apply_target" in inspect.getsource(pool)


def test_a_pool_stops_with_on_stop() -> None:
    for pool in (prefork.TaskPool, gevent.TaskPool, thread.TaskPool):
        assert "on_stop" in vars(pool)


def test_a_consumer_looks_up_its_receiver_for_each_message() -> None:
    assert "self.on_message" in inspect.getsource(messaging.Consumer._receive_callback)


def test_kombu_restores_a_message_to_where_the_next_one_is_taken() -> None:
    assert inspect.signature(redis.QoS.restore_by_tag).parameters["leftmost"].default is False
    assert "leftmost=True" in inspect.getsource(redis.QoS.reject)
