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

from hardening.private import celery_version
from hardening.twins.adoption import adopt
from tests.helpers.hardened_apps import hardened_app, request_of, run, send

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
