"""The worker's parent: one letter and one report for what the child could not see, and no ack without it."""

from __future__ import annotations

from typing import Any

import pytest
from billiard.einfo import ExceptionInfo
from celery import Task, signals
from celery.exceptions import Ignore, Reject, Retry, Terminated, TimeLimitExceeded, WorkerLostError
from celery.worker import state as worker_state
from celery.worker.request import Request

from hardening.capture import DELIVERY, LetterNotKept
from hardening.holding import holding_for
from tests.helpers.hardened_apps import (
    EVENTS,
    LETTERS,
    RecordingSink,
    cut_off,
    hardened_app,
    request_of,
    run,
    send,
    waiting,
)

pytestmark = pytest.mark.usefixtures("isolated", "recording")


@pytest.fixture
def app():
    return hardened_app()


@pytest.fixture
def told():
    """What the world is told of failures."""
    seen: list[str] = []

    def failed(sender, exception, **_):
        seen.append(f"signal {type(exception).__name__}")

    signals.task_failure.connect(failed, weak=False, dispatch_uid="told")
    yield seen
    signals.task_failure.disconnect(dispatch_uid="told")


def make(app, told, **options):
    """A task with a failure hook, whose messages carry an errback."""

    class Hooked(Task):
        abstract = True

        def on_failure(self, exc, task_id, args, kwargs, einfo):
            told.append(f"hook {type(exc).__name__}")

    @app.task(name="errback", shared=False)
    def errback(request, exc, traceback):
        told.append("errback")

    @app.task(name="work", base=Hooked, shared=False, **options)
    def work(*args, **kwargs):
        return "done"

    return work, errback


def received(app, told, *, retries=0, **options):
    work, errback = make(app, told, **options)
    return request_of(app, send(work, link_error=errback.s(), retries=retries))


def info_of(exc: BaseException) -> ExceptionInfo:
    try:
        raise exc
    except BaseException:
        return ExceptionInfo()


def down(app, request) -> None:
    RecordingSink.down = True
    cut_off(app)


def test_a_hard_time_limit_is_kept_and_reported_once_though_the_pool_tells_twice(app, told) -> None:
    request = received(app, told)

    request.on_failure(info_of(TimeLimitExceeded(3)), return_ok=False)
    request.on_timeout(soft=False, timeout=3)

    assert [letter.reason for letter in LETTERS] == ["time_limit"]
    assert LETTERS[0].last_attempt.error_class == "billiard.exceptions.TimeLimitExceeded"
    assert EVENTS == ["letter time_limit", "backend FAILURE"]
    assert sorted(told) == ["errback", "hook TimeLimitExceeded", "signal TimeLimitExceeded"]
    assert request.answers.given == ["ack"]


def test_a_soft_time_limit_is_only_logged(app, told) -> None:
    request = received(app, told)

    request.on_timeout(soft=True, timeout=3)

    assert (LETTERS, told, request.answers.given) == ([], [], [])


def test_a_hard_time_limit_whose_letter_is_not_kept_is_held_and_nobody_told(app, told) -> None:
    request = received(app, told)
    down(app, request)

    request.on_timeout(soft=False, timeout=3)

    assert told == []
    assert request.answers.given == []
    assert len(holding_for(app)) == 1


@pytest.mark.parametrize("broken", ["backend", "hook"])
def test_a_hard_time_limit_is_acknowledged_even_when_nobody_can_be_told(broken, app, told) -> None:
    request = received(app, told)
    if broken == "backend":
        request.task.backend.down = True
    else:
        request.task.on_failure = lambda *_: 1 / 0

    request.on_timeout(soft=False, timeout=3)

    assert [letter.reason for letter in LETTERS] == ["time_limit"]
    assert request.answers.given == ["ack"]


@pytest.mark.parametrize("exc", [WorkerLostError("signal 9"), SystemExit(1), KeyboardInterrupt()])
def test_a_lost_child_puts_the_message_back_and_tells_nobody(exc, app, told) -> None:
    request = received(app, told)

    request.on_failure(info_of(exc))

    assert request.answers.given == ["requeue"]
    assert (LETTERS, told, EVENTS) == ([], [], [])


@pytest.mark.parametrize("exc", [WorkerLostError("signal 9"), SystemExit(1)])
def test_a_lost_child_of_a_task_that_opted_out_is_a_letter(exc, app, told) -> None:
    request = received(app, told, early_ack="a lost ping is harmless")
    request.on_accepted(1, 0.0)
    assert request.answers.given == ["ack"]

    request.on_failure(info_of(exc))

    assert [letter.reason for letter in LETTERS] == ["worker_lost"]
    assert EVENTS == ["letter worker_lost", "backend FAILURE"]
    assert told == ["errback", "signal WorkerLostError"]
    assert request.answers.given == ["ack"]


@pytest.mark.celery_since(5, 7)
def test_a_lost_child_with_retries_left_is_retried_by_celery_without_a_letter(app, told) -> None:
    request = received(app, told, retry_on_worker_lost=True, max_retries=1, default_retry_delay=0)

    request.on_failure(info_of(WorkerLostError("signal 9")))

    assert LETTERS == []
    assert waiting(app) == 1
    assert request.answers.given == ["ack"]


@pytest.mark.celery_since(5, 7)
def test_a_lost_child_whose_retries_are_used_up_is_a_letter(app, told) -> None:
    request = received(app, told, retry_on_worker_lost=True, max_retries=1, retries=1)

    request.on_failure(info_of(WorkerLostError("signal 9")))

    assert [letter.reason for letter in LETTERS] == ["worker_lost"]
    assert LETTERS[0].last_attempt.number == 2
    assert EVENTS == ["letter worker_lost", "backend FAILURE"]
    assert told == ["errback", "signal WorkerLostError"]
    assert request.answers.given == ["ack"]


@pytest.mark.celery_since(5, 7)
def test_a_lost_child_that_may_be_retried_for_ever_is_never_a_letter(app, told) -> None:
    request = received(
        app, told, retry_on_worker_lost=True, max_retries=None, retries=99, default_retry_delay=0
    )

    request.on_failure(info_of(WorkerLostError("signal 9")))

    assert LETTERS == []
    assert request.answers.given == ["ack"]


@pytest.mark.parametrize("return_ok", [True, False])
def test_a_reject_is_a_failure_told_once_and_leaves_the_queue(return_ok, app, told) -> None:
    request = received(app, told)

    request.on_failure(info_of(Reject("no use", requeue=False)), return_ok=return_ok)

    # The child has kept the letter when it says so itself.
    assert [letter.reason for letter in LETTERS] == ([] if return_ok else ["rejected"])
    assert request.answers.given == ["reject"]
    assert told == ["errback", "signal Reject"]
    assert "backend FAILURE" in EVENTS


def test_a_reject_leaves_the_queue_even_when_nobody_can_be_told(app, told) -> None:
    request = received(app, told)
    request.task.backend.down = True

    request.on_failure(info_of(Reject("no use", requeue=False)), return_ok=True)

    assert request.answers.given == ["reject"]


@pytest.mark.parametrize("return_ok", [True, False])
def test_a_reject_with_requeue_goes_back_without_a_letter(return_ok, app, told) -> None:
    request = received(app, told)

    request.on_failure(info_of(Reject("later", requeue=True)), return_ok=return_ok)

    assert request.answers.given == ["requeue"]
    assert (LETTERS, told) == ([], [])


@pytest.mark.parametrize("exc", [Ignore(), Retry("later")])
def test_ignore_and_retry_are_acknowledged_without_a_letter(exc, app, told) -> None:
    request = received(app, told)

    request.on_failure(info_of(exc), return_ok=True)

    assert request.answers.given == ["ack"]
    assert (LETTERS, told) == ([], [])


def test_a_terminated_task_is_revoked_as_celery_does_it(app, told) -> None:
    request = received(app, told)

    request.on_failure(info_of(Terminated(15)))

    assert LETTERS == []
    assert EVENTS == ["backend REVOKED"]
    assert request.answers.given == ["ack"]


def test_an_error_of_the_pool_itself_is_a_letter(app, told) -> None:
    request = received(app, told)

    request.on_failure(info_of(RuntimeError("the pool broke")))

    assert [letter.reason for letter in LETTERS] == ["internal_error"]
    assert EVENTS == ["letter internal_error", "backend FAILURE"]
    assert request.answers.given == ["ack"]


def test_an_error_of_the_pool_is_settled_even_when_the_backend_is_down(app, told) -> None:
    request = received(app, told)
    request.task.backend.down = True

    request.on_failure(info_of(RuntimeError("the pool broke")))

    assert [letter.reason for letter in LETTERS] == ["internal_error"]
    assert request.answers.given == ["ack"]


def test_a_memory_error_of_the_tracer_ends_no_worker_and_the_message_goes_back(app, told) -> None:
    request = received(app, told)

    request.on_failure(info_of(MemoryError()))

    assert (LETTERS, told, request.answers.given) == ([], [], ["requeue"])


def test_what_the_child_answered_is_acknowledged_without_a_second_letter(app, told) -> None:
    request = received(app, told)

    request.on_failure(info_of(ValueError("kept by the child")), return_ok=True)

    assert request.answers.given == ["ack"]
    assert LETTERS == []


def test_a_letter_that_the_child_could_not_keep_is_held_unacknowledged(app, told) -> None:
    @app.task(name="fails", shared=False)
    def fails():
        raise ValueError("no")

    request = request_of(app, send(fails))
    down(app, request)

    given = run(request)

    assert given == []
    assert request not in worker_state.active_requests
    assert request not in worker_state.reserved_requests
    assert len(holding_for(app)) == 1
    assert EVENTS == []


def test_a_held_message_is_settled_when_a_store_takes_its_letter(app, told) -> None:
    request = received(app, told)
    down(app, request)
    request.on_timeout(soft=False, timeout=3)
    RecordingSink.down = False

    request.settle_held("TimeLimitExceeded", "too long")

    assert EVENTS == ["backend FAILURE"]
    assert told == ["errback", "signal HeldFailure"]
    assert request.answers.given == ["ack"]


def test_a_held_message_is_acknowledged_even_when_the_result_backend_raises(app, told) -> None:
    request = received(app, told)
    request.task.backend.down = True

    request.settle_held("ValueError", "no")

    assert request.answers.given == ["ack"]


def test_a_letter_not_kept_from_the_child_is_held_whatever_else_it_says(app, told) -> None:
    from hardening.core.letter import dump_letter
    from tests.helpers.dlq_letters import letter

    request = received(app, told)

    request.on_failure(info_of(LetterNotKept(dump_letter(letter()).decode())), return_ok=True)

    assert request.answers.given == []
    assert len(holding_for(app)) == 1


def test_the_letter_of_the_parent_is_as_complete_as_one_of_the_child(app, told) -> None:
    work, errback = make(app, told)
    message = send(work, 1, kwargs={"a": 2}, link_error=errback.s(), headers={"tenant": "t"})
    request = request_of(app, message)

    request.on_timeout(soft=False, timeout=3)
    letter = LETTERS[0]

    assert letter.task_id == request.id
    assert letter.task_name == "work"
    assert letter.payload.headers["tenant"] == "t"
    assert letter.payload.body == message.body.encode() if isinstance(message.body, str) else message.body
    assert letter.canvas.errbacks == ("errback",)
    assert letter.worker == "w1@host"
    assert letter.queue == app.conf.task_default_queue


def test_the_text_of_a_parents_letter_holds_no_secrets(app, told) -> None:
    @app.task(name="login", shared=False)
    def login(user, password): ...

    request = request_of(app, send(login, "ann", "hunter22"))

    request.on_failure(info_of(RuntimeError("pool: hunter22")))

    attempt = LETTERS[0].last_attempt
    assert "hunter22" not in attempt.message + attempt.traceback


def test_the_raw_message_goes_to_the_child_inside_the_properties(app, told) -> None:
    request = received(app, told)

    delivery = request.request_dict["properties"][DELIVERY]

    assert delivery.headers["task"] == "work"
    assert request.message.properties.get(DELIVERY) is None


def test_what_goes_to_the_child_can_be_pickled(app, told) -> None:
    import pickle

    request = received(app, told)

    copied = pickle.loads(pickle.dumps(request.request_dict))

    assert copied["properties"][DELIVERY] == request.request_dict["properties"][DELIVERY]


def test_a_request_class_of_the_projects_own_runs_with_the_guard(app, told) -> None:
    calls: list[str] = []

    class Own(Request):
        def on_accepted(self: Any, pid: Any, time_accepted: Any) -> Any:
            calls.append("accepted")
            return super().on_accepted(pid, time_accepted)

        def on_failure(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls.append("failure")
            return super().on_failure(*args, **kwargs)

    request = received(app, told, Request=Own)

    run(request)
    request.on_failure(info_of(RuntimeError("x")))

    assert calls == ["accepted", "failure"]
    assert [letter.reason for letter in LETTERS] == ["internal_error"]


@pytest.mark.parametrize("retries", ["many", [1]])
def test_a_retry_count_that_is_no_number_costs_no_letter(retries, app, told) -> None:
    work, _ = make(app, told)
    message = send(work)
    message.headers["retries"] = retries
    request = request_of(app, message)

    request.on_timeout(soft=False, timeout=3)

    assert [(letter.reason, letter.last_attempt.number) for letter in LETTERS] == [("time_limit", 1)]
    assert request.answers.given == ["ack"]


def test_a_letter_that_the_parent_cannot_put_together_is_kept_without_its_details(
    app, told, monkeypatch
) -> None:
    def broken(*args, **kwargs):
        raise RuntimeError("a defect")

    monkeypatch.setattr("hardening.capture.Keeper.letter", broken)
    request = received(app, told)

    request.on_timeout(soft=False, timeout=3)

    assert [(letter.task_id, letter.reason) for letter in LETTERS] == [(request.id, "time_limit")]
    assert request.answers.given == ["ack"]


@pytest.mark.parametrize("odd", [{"_children": "x"}, {"_children": [1]}, {"headers": "x"}, {"headers": [1]}])
def test_headers_that_celery_keeps_in_a_request_are_no_reason_to_tell_nobody(odd, app) -> None:
    @app.task(name="bad", shared=False)
    def bad():
        raise ValueError("x")

    @app.task(name="lost", shared=False, early_ack="a lost ping is harmless")
    def lost(): ...

    failed, gone = send(bad), send(lost)
    for message in (failed, gone):
        message.headers.update(odd)
    run(request_of(app, failed))
    request_of(app, gone).on_failure(info_of(WorkerLostError("signal 9")))

    # Of a body that failed Celery tells it, of a lost child the parent does.
    for message in (failed, gone):
        assert app.backend.get_task_meta(message.headers["id"])["status"] == "FAILURE"
    assert [letter.reason for letter in LETTERS] == ["error", "worker_lost"]
    assert all(letter.payload.headers.items() >= odd.items() for letter in LETTERS)
