"""Paths of plain Celery that end badly, and how they end here; see docs/explanation/celery-paths.md."""

from __future__ import annotations

from typing import Any

import pytest
from billiard.einfo import ExceptionInfo
from celery import Task, signals
from celery.exceptions import WorkerLostError

from tests.helpers.hardened_apps import (
    EVENTS,
    LETTERS,
    hardened_app,
    process,
    request_of,
    run,
    send,
    waiting,
)

pytestmark = [
    pytest.mark.usefixtures("isolated", "recording"),
    # Celery warns where a hook breaks its trace, which would hide what it does then.
    pytest.mark.filterwarnings("ignore:Exception raised outside body:RuntimeWarning"),
]


@pytest.fixture
def app():
    return hardened_app()


@pytest.fixture
def failures():
    """What task_failure tells."""
    seen: list[str] = []

    def failed(exception, **_):
        seen.append(type(exception).__name__)

    signals.task_failure.connect(failed, weak=False, dispatch_uid="paths")
    yield seen
    signals.task_failure.disconnect(dispatch_uid="paths")


def hooked(app, hook: str, body: Any, **options):
    """A task whose `hook` raises."""

    def broken(self, *args):
        raise LookupError("in the hook")

    base = type("Hooked", (Task,), {"abstract": True, hook: broken})

    @app.task(name="hooked", bind=True, base=base, shared=False, **options)
    def task(self):
        return body(self)

    return task


def errback_of(app, seen: list[str]):
    @app.task(name="errback", shared=False)
    def errback(request, exc, traceback):
        seen.append("errback")

    return errback.s()


def fail(self):
    raise ValueError("in the body")


def again(self):
    raise self.retry(exc=ValueError("in the body"), countdown=0)


def test_an_error_of_a_failure_hook_does_not_take_the_place_of_the_bodys(app, failures, caplog) -> None:
    request = process(hooked(app, "on_failure", fail), task_id="h")

    assert failures == ["ValueError"]
    assert EVENTS == ["letter error", "backend FAILURE"]
    assert isinstance(app.backend.get_result("h"), ValueError)
    assert request.answers.given == ["ack"]
    assert "on_failure of task hooked[h] raised" in caplog.text


def test_an_error_of_a_retry_hook_fails_nothing_and_tells_no_caller(app, failures) -> None:
    told: list[str] = []
    task = hooked(app, "on_retry", again)

    request = process(task, task_id="h", link_error=errback_of(app, told))

    assert app.backend.get_state("h") == "RETRY"
    assert (failures, told, LETTERS) == ([], [], [])
    assert waiting(app) == 1
    assert request.answers.given == ["ack"]


@pytest.mark.parametrize("hook", ["on_success", "after_return"])
def test_an_error_of_a_hook_after_a_success_leaves_the_success(hook, app, failures) -> None:
    request = process(hooked(app, hook, lambda self: 7), task_id="h")

    assert app.backend.get_result("h") == 7
    assert (failures, LETTERS) == ([], [])
    assert request.answers.given == ["ack"]


@pytest.mark.celery_since(5, 7)  # Celery 5.6 makes a failed result of it.
def test_a_hook_of_an_eager_call_raises_as_in_plain_celery(app) -> None:
    task = hooked(app, "after_return", lambda self: 7)

    with pytest.raises(LookupError):
        task.apply()


def test_hooks_that_are_no_plain_methods_are_left_alone(app) -> None:
    seen: list[str] = []

    class Odd(Task):
        abstract = True

        @staticmethod
        def on_failure(exc, task_id, args, kwargs, einfo):
            seen.append(task_id)

    @app.task(name="odd", base=Odd, shared=False)
    def odd():
        raise ValueError

    process(odd, task_id="h")

    assert seen == ["h"]


@pytest.mark.parametrize(
    "signal",
    [signals.task_prerun, signals.task_postrun, signals.task_success, signals.task_received],
    ids=lambda signal: signal.name,
)
def test_a_receiver_that_raises_changes_nothing(signal, app) -> None:
    def broken(**_):
        raise LookupError("in the receiver")

    @app.task(name="fine", shared=False)
    def fine():
        return 7

    signal.connect(broken, weak=False, dispatch_uid="paths")
    try:
        request = process(fine, task_id="h")
    finally:
        signal.disconnect(dispatch_uid="paths")

    assert app.backend.get_result("h") == 7
    assert request.answers.given == ["ack"]
    assert LETTERS == []


def test_a_retry_is_with_the_broker_before_its_old_message_is_acknowledged(app) -> None:
    seen: list[Any] = []

    @app.task(name="again", bind=True, shared=False)
    def asks(self):
        again(self)

    request = request_of(app, send(asks))
    answer = request.answers.ack

    def noted(*args: Any) -> None:
        seen.append(waiting(app))
        answer(*args)

    request._on_ack = noted

    assert run(request) == ["ack"]
    assert seen == [1]


def lost(app, **options):
    """A request whose child was lost."""

    @app.task(name="done", shared=False, **options)
    def done():
        return 7

    return request_of(app, send(done, task_id="h"))


def report(request) -> None:
    try:
        raise WorkerLostError("signal 9")
    except WorkerLostError:
        request.on_failure(ExceptionInfo(), return_ok=False)


@pytest.mark.celery_since(5, 7)
def test_a_child_that_dies_after_its_success_was_stored_has_succeeded(app, failures) -> None:
    request = lost(app)
    app.backend.store_result("h", 7, "SUCCESS")

    report(request)

    assert request.answers.given == ["ack"]
    assert (failures, LETTERS) == ([], [])
    assert app.backend.get_result("h") == 7


def test_the_state_of_a_retry_is_stored_once_and_before_its_next_attempt_can_end(app) -> None:
    seen: list[str] = []

    @app.task(name="again", bind=True, shared=False)
    def asks(self):
        again(self)

    def sent(**_):
        seen.append(app.backend.get_state("h"))

    message = send(asks, task_id="h")
    signals.before_task_publish.connect(sent, weak=False, dispatch_uid="paths")
    try:
        run(request_of(app, message))
    finally:
        signals.before_task_publish.disconnect(dispatch_uid="paths")

    assert seen == ["RETRY"]
    assert EVENTS == ["backend RETRY"]


@pytest.mark.parametrize("stored", [True, False])
def test_an_ignored_result_of_a_retry_is_stored_only_where_the_task_says_so(stored, app) -> None:
    @app.task(name="again", bind=True, ignore_result=True, store_errors_even_if_ignored=stored, shared=False)
    def asks(self):
        again(self)

    process(asks)

    assert (["backend RETRY"] if stored else []) == EVENTS
    assert waiting(app) == 1
