"""Calling a task as a function, eagerly or from another task is what it is in plain Celery."""

from __future__ import annotations

import functools
from contextlib import ExitStack

import pydantic
import pytest
from celery import Task
from celery.exceptions import MaxRetriesExceededError, Reject, Retry
from django.db import transaction

from hardening import Permanent
from hardening.trace import error_of
from tests.helpers.hardened_apps import (
    EVENTS,
    LETTERS,
    as_worker,
    hardened_app,
    no_hardening,
    plain_app,
    process,
    request_of,
    send,
    trace_of,
)

pytestmark = pytest.mark.usefixtures("isolated", "recording")


class OwnCall(Task):
    abstract = True

    def __call__(self, *args, **kwargs):
        return ["own call", self.request.id, super().__call__(*args, **kwargs)]


class OwnCallNoSuper(Task):
    abstract = True

    def __call__(self, *args, **kwargs):
        return ["no super", self.request.id, args]


class OwnRetry(Task):
    abstract = True

    def retry(self, *args, **kwargs):
        kwargs["countdown"] = 5
        return super().retry(*args, **kwargs)


def traced(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return ["decorated", function(*args, **kwargs)]

    return wrapper


def fill(app):  # noqa: C901 (a list of tasks)
    """The same tasks for a plain and for a hardened app."""

    @app.task(name="ids", bind=True, shared=False)
    def ids(self, value):
        return [self.request.id, self.request.called_directly, self.request.args, value]

    @app.task(name="own", bind=True, base=OwnCall, shared=False)
    def own(self, value):
        return [self.request.id, value]

    @app.task(name="no_super", base=OwnCallNoSuper, shared=False)
    def no_super(value):
        raise AssertionError("never called")

    @app.task(name="calls_itself", bind=True, shared=False)
    def calls_itself(self, depth):
        inner = calls_itself(depth - 1) if depth else None
        return [self.request.id, self.request.args, self.request.called_directly, inner]

    @app.task(name="calls_other", bind=True, shared=False)
    def calls_other(self, value):
        before = self.request.id
        inner = ids(value)
        eager = ids.apply((value,), task_id="inner-eager").get(disable_sync_subtasks=False)
        return [before, inner, eager, self.request.id]

    @app.task(name="wrapped", shared=False)
    @traced
    def wrapped(value):
        return value

    @app.task(name="fails", shared=False)
    def fails(value):
        raise ValueError(value)

    @app.task(name="retries", bind=True, max_retries=2, shared=False)
    def retries(self, value):
        try:
            raise KeyError(value)
        except KeyError as exc:
            raise self.retry(exc=exc, countdown=0) from exc

    @app.task(
        name="auto", bind=True, autoretry_for=(KeyError,), max_retries=1, retry_backoff=False, shared=False
    )
    def auto(self, value):
        raise KeyError(value)

    @app.task(name="gives_up", bind=True, max_retries=0, shared=False)
    def gives_up(self, value):
        raise self.retry(countdown=0)

    @app.task(name="rejects", shared=False)
    def rejects(value):
        raise Reject(value, requeue=False)

    app.finalize()
    return app


def outcome(call):
    """A value, or what was raised, in a form that two apps can be compared by."""
    try:
        return call()
    except Exception as exc:
        return (type(exc).__name__, str(exc))


NAMES = (
    "ids",
    "own",
    "no_super",
    "calls_itself",
    "calls_other",
    "wrapped",
    "fails",
    "retries",
    "auto",
    "gives_up",
    "rejects",
)


@pytest.fixture
def pair():
    with ExitStack() as stack:
        stack.enter_context(no_hardening())
        plain = fill(plain_app())
        stack.pop_all()
    return plain, fill(hardened_app())


@pytest.mark.parametrize("name", NAMES)
def test_a_direct_call_is_a_plain_function_call(name, pair) -> None:
    plain, hardened = (outcome(lambda app=app: app.tasks[name](1)) for app in pair)

    assert hardened == plain
    assert LETTERS == []


@pytest.mark.parametrize("name", NAMES)
def test_an_eager_apply_is_that_of_celery(name, pair) -> None:
    def eager(app):
        result = app.tasks[name].apply((1,), task_id="eager")
        return (result.id, result.state, outcome(lambda: result.get(disable_sync_subtasks=False)))

    plain, hardened = (eager(app) for app in pair)

    assert hardened == plain
    assert LETTERS == []


@pytest.mark.parametrize("name", NAMES)
def test_an_eager_call_that_throws_is_that_of_celery(name, pair) -> None:
    plain, hardened = (
        outcome(
            lambda app=app: (
                app.tasks[name].apply((1,), task_id="eager", throw=True).get(disable_sync_subtasks=False)
            )
        )
        for app in pair
    )

    assert hardened == plain


@pytest.mark.parametrize("protected", [True, False])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("fails", "auto", "retries")])
def test_a_delivery_gives_what_it_gives_in_plain_celery(name, protected, pair) -> None:
    """`protected`: with the changes that Celery makes to a worker process, and without."""

    def delivered(app):
        with ExitStack() as stack:
            if protected:
                stack.enter_context(as_worker(app))
            request = request_of(app, send(app.tasks[name], 1, task_id="delivered"))
            failed, value, _runtime = trace_of(request)
        return failed, type(error_of(value)) if failed else value

    plain, hardened = (delivered(app) for app in pair)

    assert hardened == plain


def test_in_a_worker_a_call_by_super_keeps_the_request(pair) -> None:
    app = pair[1]
    with as_worker(app):
        process(app.tasks["own"], 7, task_id="kept-id")

    assert app.backend.get_result("kept-id") == ["own call", "kept-id", ["kept-id", 7]]


def test_a_failing_direct_call_in_a_running_task_leaves_no_letter_of_its_own() -> None:
    app = hardened_app()

    @app.task(name="inner", shared=False)
    def inner():
        raise ValueError("inner")

    @app.task(name="outer", shared=False)
    def outer():
        try:
            inner()
        except ValueError:
            return "handled"

    process(outer)

    assert LETTERS == []
    assert EVENTS == ["backend SUCCESS"]


def test_a_failing_eager_task_in_a_running_task_leaves_no_letter_of_its_own() -> None:
    app = hardened_app()

    @app.task(name="inner", bind=True, shared=False)
    def inner(self):
        raise ValueError(self.request.id)

    @app.task(name="outer", shared=False)
    def outer():
        return str(inner.apply(task_id="inner-id").result)

    process(outer, task_id="outer-id")

    assert LETTERS == []
    assert app.backend.get_result("outer-id") == "inner-id"


def test_a_task_that_calls_itself_and_fails_inside_leaves_one_letter_of_the_delivery() -> None:
    app = hardened_app()

    @app.task(name="recursive", bind=True, shared=False)
    def recursive(self, depth):
        if not depth:
            raise ValueError("at the bottom")
        return recursive(depth - 1)

    process(recursive, 3, task_id="outermost")

    assert [letter.task_id for letter in LETTERS] == ["outermost"]
    assert LETTERS[0].last_attempt.message == "at the bottom"


def test_user_decorators_stay_around_the_body() -> None:
    app = fill(hardened_app())

    process(app.tasks["wrapped"], 5, task_id="w")

    assert app.backend.get_result("w") == ["decorated", 5]
    assert app.tasks["wrapped"].run.__wrapped__(5) == 5
    assert app.tasks["wrapped"].__wrapped__(5) == ["decorated", 5]


def test_transaction_atomic_as_a_decorator_is_kept() -> None:
    app = hardened_app()

    @app.task(name="atomic", shared=False)
    @transaction.atomic
    def atomic(value):
        """Its docstring."""
        return value

    app.finalize()
    run = app.tasks["atomic"].run

    assert run.__wrapped__(3) == 3
    assert run.__name__ == "atomic"
    assert app.tasks["atomic"].__doc__ == "Its docstring."


def test_a_retry_method_of_the_projects_own_is_still_the_one_that_runs() -> None:
    app = hardened_app()

    @app.task(name="own_retry", bind=True, base=OwnRetry, shared=False)
    def own_retry(self):
        raise self.retry(exc=ValueError("again"), countdown=60)

    request = process(own_retry)

    assert request.answers.given == ["ack"]
    assert EVENTS == ["backend RETRY"]
    again = request_of(app, _next(app))
    assert 0 < (again.eta - _now()).total_seconds() <= 5


def test_a_retry_method_with_a_signature_of_its_own_gets_what_it_was_given() -> None:
    app = hardened_app()
    seen: list[object] = []

    class Narrow(Task):
        abstract = True

        def retry(self, exc=None, wait=7):  # type: ignore[override]
            seen.append((str(exc), wait))
            return super().retry(exc=exc, countdown=wait)

    @app.task(name="narrow", bind=True, base=Narrow, shared=False)
    def narrow(self):
        raise self.retry(ValueError("again"), wait=0)

    request = process(narrow)

    assert seen == [("again", 0)]
    assert request.answers.given == ["ack"]
    assert EVENTS == ["backend RETRY"]


def test_a_retry_with_new_arguments_by_position_sends_them() -> None:
    app = hardened_app()

    @app.task(name="moves", bind=True, shared=False)
    def moves(self, a, b=None):
        raise self.retry((5,), {"b": 6}, ValueError("x"), countdown=0)

    process(moves, 1)
    again = request_of(app, _next(app))

    assert again._payload[:2] == [[5], {"b": 6}]


def _next(app):
    from tests.helpers.hardened_apps import fetch

    return fetch(app)


def _now():
    from datetime import UTC, datetime

    return datetime.now(UTC)


def test_permanent_beats_a_retry_by_hand_and_autoretry(pair) -> None:
    app = hardened_app()

    @app.task(name="by_hand", bind=True, shared=False)
    def by_hand(self):
        raise self.retry(exc=Permanent("never"))

    @app.task(name="broad", autoretry_for=(Exception,), shared=False)
    def broad():
        raise Permanent("never")

    for task in (by_hand, broad):
        LETTERS.clear()
        assert process(task).answers.given == ["ack"]
        assert [letter.reason for letter in LETTERS] == ["permanent"]


def test_a_direct_call_of_retry_still_raises_what_celery_raises() -> None:
    app = hardened_app()

    @app.task(name="direct", bind=True, shared=False)
    def direct(self):
        raise self.retry(exc=ValueError("mine"))

    with pytest.raises(ValueError, match="mine"):
        direct()


def test_retry_is_a_retry_and_exhaustion_is_an_error() -> None:
    app = hardened_app()
    seen: list[type] = []

    @app.task(name="watch", bind=True, max_retries=1, shared=False)
    def watch(self):
        try:
            self.retry(countdown=0)
        except Exception as exc:
            seen.append(type(exc))
            raise

    process(watch)
    process(watch, retries=1)

    assert seen == [Retry, MaxRetriesExceededError]
    assert [letter.reason for letter in LETTERS] == ["retries_exhausted"]


def test_a_pydantic_task_gets_and_gives_models() -> None:
    class Order(pydantic.BaseModel):
        number: int

    app = hardened_app()

    def body(order):
        assert isinstance(order, Order)
        return Order(number=order.number + 1)

    body.__annotations__ = {"order": Order, "return": Order}
    task = app.task(name="modelled", pydantic=True, shared=False)(body)

    process(task, {"number": 1}, task_id="p")

    assert app.backend.get_result("p") == {"number": 2}
    assert task({"number": 1}) == {"number": 2}
    process(task, {"number": "no number"})
    assert [letter.reason for letter in LETTERS] == ["permanent"]
