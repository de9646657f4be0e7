"""One execution in the process that runs the body: the letter first, and an honest answer whatever breaks."""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from typing import Any

import gevent
import pytest
from celery import Task, signals
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded, WorkerShutdown
from greenlet import GreenletExit

from hardening import Permanent
from hardening.capture import LetterNotKept
from hardening.core.identity import ATTEMPTS_HEADER
from hardening.core.redaction import MASK
from hardening.current import current
from hardening.history import decode_history
from hardening.returning import returning_for
from hardening.trace import CUT_OFF, error_of
from tests.helpers.hardened_apps import (
    EVENTS,
    LETTERS,
    RecordingSink,
    cut_off,
    fetch,
    hardened_app,
    process,
    request_of,
    run,
    send,
    trace_of,
    waiting,
)

pytestmark = [
    pytest.mark.usefixtures("isolated", "recording"),
    # Celery warns whenever its trace breaks; here it does so on purpose.
    pytest.mark.filterwarnings("ignore:Exception raised outside body:RuntimeWarning"),
]


class BrokenText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class BrokenRepr(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class BrokenTraceback(Exception):
    @property
    def __cause__(self):  # type: ignore[override]
        raise RuntimeError("no cause")


class Unpicklable(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)
        self.two = two


class HoldsALock(Exception):
    """Cannot be pickled at all."""

    def __init__(self) -> None:
        import threading

        super().__init__("holds a lock")
        self.lock = threading.Lock()


class Backwards(BaseException):
    """Neither an Exception nor one of Python's own."""


@pytest.fixture
def app():
    return hardened_app()


def failing(app, exc, **options):
    """A task that raises `exc`."""

    @app.task(name="failing", shared=False, **options)
    def failing(*args, **kwargs):
        raise exc

    return failing


def answer(task, *args, backend_down=False, letters_down=False, **options):
    """What the child answers: the error, or the value."""
    request = request_of(task.app, send(task, *args, **options))
    task.backend.down = backend_down
    RecordingSink.down = letters_down
    if letters_down:
        cut_off(task.app)
    failed, value, _runtime = trace_of(request)
    return error_of(value) if failed else value


def test_a_success_leaves_no_letter(app) -> None:
    @app.task(name="fine", shared=False)
    def fine():
        return 7

    request = process(fine)

    assert request.answers.given == ["ack"]
    assert EVENTS == ["backend SUCCESS"]
    assert LETTERS == []


def test_a_retry_raised_by_hand_leaves_a_letter_since_nothing_was_sent(app) -> None:
    process(failing(app, Retry("later", exc=ValueError("the error behind it"))))

    assert [(letter.reason, letter.last_attempt.error_class) for letter in LETTERS] == [
        ("retry_unpublished", "ValueError")
    ]
    assert EVENTS[-1] == "backend FAILURE"


def test_the_letter_of_an_error_is_kept_before_celery_records_the_failure(app) -> None:
    request = process(failing(app, ValueError("no")))

    assert EVENTS == ["letter error", "backend FAILURE"]
    assert request.answers.given == ["ack"]


@pytest.mark.parametrize(
    ("exc", "reason"),
    [
        (ValueError("x"), "error"),
        (Permanent("x"), "permanent"),
        (Reject("x", requeue=False), "rejected"),
        (SoftTimeLimitExceeded(1), "time_limit"),
    ],
)
def test_the_reason_says_how_the_body_ended(exc, reason, app) -> None:
    answer(failing(app, exc))

    assert [letter.reason for letter in LETTERS] == [reason]


def test_what_is_no_end_of_the_message_leaves_no_letter(app) -> None:
    given = answer(failing(app, Ignore()))

    assert isinstance(given, Ignore)
    assert LETTERS == []


@pytest.mark.parametrize("backend_down", [False, True])
def test_a_reject_with_requeue_is_sent_again_later_and_counts(backend_down, app) -> None:
    given = answer(failing(app, Reject("not now", requeue=True)), backend_down=backend_down)

    again = fetch(app)
    assert isinstance(given, Retry)
    assert LETTERS == []
    assert again.headers["retries"] == 1
    assert again.headers["eta"] is not None
    assert [a.message for a in decode_history(again.headers[ATTEMPTS_HEADER])] == [
        "put back by the task: 'not now'"
    ]


def test_a_reject_with_requeue_at_the_last_attempt_is_a_letter(app) -> None:
    task = failing(app, Reject("not now", requeue=True), retry_policy={"max_attempts": 3})

    request = process(task, retries=2)

    assert [letter.reason for letter in LETTERS] == ["retries_exhausted"]
    assert EVENTS[-1] == "backend FAILURE"
    assert request.answers.given == ["ack"]
    assert waiting(app) == 0


@pytest.mark.parametrize(
    "hook",
    [
        "before_start",
        # Celery 5.6 makes a failure of it.
        pytest.param("on_success", marks=pytest.mark.celery_since(5, 7)),
        pytest.param("after_return", marks=pytest.mark.celery_since(5, 7)),
    ],
)
@pytest.mark.parametrize(("retries", "reasons"), [(0, []), (2, ["retries_exhausted"])])
def test_a_reject_with_requeue_of_a_hook_is_bounded_too(hook, retries, reasons, app) -> None:
    def refuse(self, *args):
        raise Reject("not now", requeue=True)

    base = type("Refusing", (Task,), {"abstract": True, hook: refuse})

    @app.task(name="hooked", base=base, retry_policy={"max_attempts": 3}, shared=False)
    def hooked(value): ...

    request = process(hooked, 7, retries=retries)

    assert [letter.reason for letter in LETTERS] == reasons
    assert request.answers.given == ["ack"]
    assert waiting(app) == (0 if reasons else 1)
    if not reasons:
        assert fetch(app).payload[0] == [7]


def test_a_letter_that_no_store_takes_is_answered_as_not_kept_and_nothing_is_reported(app) -> None:
    failures: list[object] = []
    failed = failures.append
    signals.task_failure.connect(lambda sender, **_: failed(sender), weak=False, dispatch_uid="t")

    given = answer(failing(app, ValueError("no")), letters_down=True)

    signals.task_failure.disconnect(dispatch_uid="t")
    assert isinstance(given, LetterNotKept)
    assert given.letter.last_attempt.message == "no"
    assert EVENTS == []
    assert failures == []


def test_a_letter_that_was_not_kept_does_not_show_itself(app) -> None:
    given = answer(failing(app, ValueError("password=hunter22")), "hunter22", letters_down=True)

    assert "hunter22" not in f"{given} {given!r}"


def test_the_letter_that_was_not_kept_survives_the_way_to_the_parent(app) -> None:
    import pickle

    given = answer(failing(app, ValueError("no")), letters_down=True)

    assert pickle.loads(pickle.dumps(given)).letter == given.letter


# With a result backend that does not answer.


def test_with_a_dead_backend_a_success_becomes_a_letter_that_says_so(app) -> None:
    @app.task(name="fine", shared=False)
    def fine():
        return 7

    given = answer(fine, backend_down=True)

    assert type(given).__name__ == "StoreDown"
    assert [letter.reason for letter in LETTERS] == ["result_not_stored"]


def test_with_a_dead_backend_a_failure_is_answered_as_what_it_was(app) -> None:
    given = answer(failing(app, ValueError("mine")), backend_down=True)

    assert isinstance(given, ValueError)
    assert given.args == ("mine",)
    assert [letter.reason for letter in LETTERS] == ["error"]


def test_with_a_dead_backend_a_retry_is_a_retry(app) -> None:
    @app.task(name="again", bind=True, shared=False)
    def again(self):
        raise self.retry(exc=ValueError("later"), countdown=0)

    given = answer(again, backend_down=True)

    assert isinstance(given, Retry)
    assert LETTERS == []
    assert waiting(app) == 1


def test_with_a_dead_backend_an_ignore_is_what_it_is(app) -> None:
    given = answer(failing(app, Ignore("x")), backend_down=True)

    assert isinstance(given, Ignore)
    assert LETTERS == []


def test_with_a_dead_backend_a_reject_is_a_reject_with_its_letter(app) -> None:
    given = answer(failing(app, Reject("x", requeue=False)), backend_down=True)

    assert isinstance(given, Reject)
    assert vars(given)["requeue"] is False
    assert [letter.reason for letter in LETTERS] == ["rejected"]


def test_with_a_dead_backend_before_the_body_the_letter_says_that_it_was_about_to_start(app) -> None:
    ran: list[int] = []

    @app.task(name="tracked", track_started=True, shared=False)
    def tracked():
        ran.append(1)

    answer(tracked, backend_down=True)

    assert ran == []
    assert [letter.reason for letter in LETTERS] == ["result_not_stored"]


def test_with_backend_and_stores_dead_the_message_is_not_settled(app) -> None:
    @app.task(name="fine", shared=False)
    def fine():
        return 7

    given = answer(fine, backend_down=True, letters_down=True)

    assert isinstance(given, LetterNotKept)


@pytest.mark.parametrize("backend_down", [False, True])
@pytest.mark.parametrize("exc_class", [BrokenText, BrokenRepr, BrokenTraceback, HoldsALock])
def test_an_error_that_is_itself_broken_is_kept_and_settled(exc_class, backend_down, app) -> None:
    task = failing(app, exc_class())
    request = request_of(app, send(task))
    task.backend.down = backend_down

    try:
        given = run(request)
    except Exception as broken:  # Pytest itself breaks on it.
        pytest.fail(f"a {type(broken).__name__} got out", pytrace=False)

    assert given == ["ack"]
    assert len(LETTERS) == 1
    assert LETTERS[0].last_attempt.error_class.endswith(exc_class.__name__)


@pytest.mark.parametrize("backend_down", [False, True])
def test_an_error_that_cannot_be_pickled_is_kept_under_its_own_name(backend_down, app) -> None:
    import pickle

    given = answer(failing(app, Unpicklable("first", "second")), backend_down=backend_down)

    pickle.loads(pickle.dumps(given))
    assert LETTERS[0].last_attempt.error_class == f"{__name__}.Unpicklable"
    assert LETTERS[0].last_attempt.message == "first"


def test_a_result_that_cannot_be_serialised_is_a_letter_of_its_own_reason(app) -> None:
    @app.task(name="odd", shared=False)
    def odd():
        return object()

    request = process(odd)

    assert [letter.reason for letter in LETTERS] == ["result_not_serialisable"]
    assert request.answers.given == ["ack"]


def test_a_callback_that_cannot_be_published_is_a_letter_of_its_own_reason(app) -> None:
    @app.task(name="fine", shared=False)
    def fine():
        return 7

    request = request_of(app, send(fine, link=fine.si()))
    cut_off(app)
    run(request)

    assert [letter.reason for letter in LETTERS] == ["callback_unpublished"]
    assert request.answers.given == ["ack"]


def test_a_retry_that_the_broker_does_not_take_leaves_its_message_unacknowledged(app) -> None:
    @app.task(name="again", bind=True, shared=False)
    def again(self):
        try:
            raise ConnectionError("the cause")
        except ConnectionError as exc:
            raise self.retry(exc=exc, countdown=0) from exc

    request = request_of(app, send(again))
    cut_off(app)
    run(request)

    assert LETTERS == []
    assert request.answers.given == []
    assert len(returning_for(app)) == 1


def test_a_retry_that_can_never_be_published_is_a_letter_with_the_error_behind_it(app) -> None:
    @app.task(name="again", bind=True, shared=False)
    def again(self):
        try:
            raise ConnectionError("the cause")
        except ConnectionError as exc:
            raise self.retry(exc=exc, kwargs={"unserialisable": object()}, countdown=0) from exc

    request = process(again)

    assert [letter.reason for letter in LETTERS] == ["retry_unpublished"]
    assert LETTERS[0].last_attempt.error_class == "ConnectionError"
    assert request.answers.given == ["reject"]


def test_an_early_acknowledged_task_whose_retry_the_broker_does_not_take_leaves_a_letter(app) -> None:
    @app.task(name="early", bind=True, shared=False, acks_late=False, early_ack="for the test")
    def early(self):
        raise self.retry(exc=ConnectionError("the cause"), countdown=0)

    request = request_of(app, send(early))
    cut_off(app)
    run(request)

    assert [letter.reason for letter in LETTERS] == ["retry_unpublished"]


def test_keyword_arguments_that_are_no_mapping_are_a_letter_and_no_success(app) -> None:
    @app.task(name="fine", shared=False)
    def fine():
        return 7

    message = send(fine)
    message.body = '[[], "no mapping", {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'
    message._decoded_cache = None
    request = request_of(app, message)
    run(request)

    assert [letter.reason for letter in LETTERS] == ["internal_error"]
    assert request.answers.given == ["ack"]


def test_an_error_of_the_before_start_hook_is_a_letter(app) -> None:
    class Hooked(Task):
        name = "hooked"

        def before_start(self, task_id, args, kwargs):
            raise LookupError("before the body")

        def run(self): ...

    app.register_task(Hooked())

    request = process(app.tasks["hooked"])

    assert [letter.last_attempt.error_class for letter in LETTERS] == ["LookupError"]
    assert request.answers.given == ["ack"]


def test_an_error_of_a_failure_hook_adds_no_second_letter(app) -> None:
    class Hooked(Task):
        name = "hooked"

        def on_failure(self, exc, task_id, args, kwargs, einfo):
            raise LookupError("in the hook")

        def run(self):
            raise ValueError("in the body")

    app.register_task(Hooked())

    request = process(app.tasks["hooked"])

    assert [letter.last_attempt.error_class for letter in LETTERS] == ["ValueError"]
    assert request.answers.given == ["ack"]


def test_an_error_of_a_success_hook_neither_fails_the_task_nor_stays_unseen(app, caplog) -> None:
    class Hooked(Task):
        name = "hooked"

        def on_success(self, retval, task_id, args, kwargs):
            raise LookupError("in the hook")

        def run(self):
            return 7

    app.register_task(Hooked())

    request = process(app.tasks["hooked"], task_id="h")

    assert request.answers.given == ["ack"]
    assert app.backend.get_state("h") == "SUCCESS"
    assert LETTERS == []
    assert "on_success of task hooked[h] raised" in caplog.text


def test_attempts_are_carried_through_the_headers_of_retries_to_the_letter(app) -> None:
    @app.task(name="thrice", bind=True, max_retries=2, shared=False)
    def thrice(self):
        try:
            raise ValueError(f"try {self.request.retries + 1}")
        except ValueError as exc:
            raise self.retry(exc=exc, countdown=0) from exc

    process(thrice, task_id="k")
    for _ in range(2):
        run(request_of(app, fetch(app)))

    assert waiting(app) == 0
    assert [letter.reason for letter in LETTERS] == ["retries_exhausted"]
    attempts = LETTERS[0].attempts
    assert [(a.number, a.message) for a in attempts] == [(1, "try 1"), (2, "try 2"), (3, "try 3")]
    assert all("ValueError: try" in a.traceback for a in attempts)
    assert LETTERS[0].delivery_key == "k"


def test_autoretry_carries_attempts_too(app) -> None:
    @app.task(
        name="auto",
        autoretry_for=(ValueError,),
        retry_kwargs={"countdown": 0, "max_retries": 1},
        shared=False,
    )
    def auto():
        raise ValueError("each time")

    process(auto)
    run(request_of(app, fetch(app)))

    assert [a.number for a in LETTERS[0].attempts] == [1, 2]
    assert LETTERS[0].reason == "retries_exhausted"


def test_a_retry_without_an_error_carries_none(app) -> None:
    @app.task(name="plain", bind=True, shared=False)
    def plain(self):
        raise self.retry(countdown=0)

    process(plain)

    assert ATTEMPTS_HEADER not in fetch(app).headers


def test_custom_headers_go_on_with_a_retry_and_the_brokers_notes_of_deaths_do_not(app) -> None:
    @app.task(name="again", bind=True, shared=False)
    def again(self):
        raise self.retry(exc=ValueError("x"), countdown=0, headers={"added": "by the task"})

    message = send(again, headers={"tenant": "t1", "x-death": [{"count": 9}], "x-first-death-queue": "q"})
    run(request_of(app, message))
    headers = fetch(app).headers

    assert headers["tenant"] == "t1"
    assert headers["added"] == "by the task"
    assert [name for name in headers if name.startswith("x-")] == []
    assert len(decode_history(headers[ATTEMPTS_HEADER])) == 1


def test_secrets_do_not_get_into_the_history_header(app) -> None:
    @app.task(name="login", bind=True, shared=False)
    def login(self, user, password, options=None):
        try:
            raise RuntimeError(f"{user} refused with {password}, {options}")
        except RuntimeError as exc:
            raise self.retry(exc=exc, countdown=0) from exc

    process(login, "ann", "hunter22", kwargs={"options": {"api_key": "abcd-efgh"}})
    header = fetch(app).headers[ATTEMPTS_HEADER]

    assert "hunter22" not in header
    assert "abcd-efgh" not in header
    assert MASK in header
    assert "ann refused" in header


def test_a_garbage_history_header_does_not_hinder_the_letter(app) -> None:
    task = failing(app, ValueError("x"))

    process(task, headers={ATTEMPTS_HEADER: "garbage"})

    assert [a.number for a in LETTERS[0].attempts] == [1]


def test_the_raw_message_does_not_travel_on_with_a_retry(app) -> None:
    @app.task(name="again", bind=True, shared=False)
    def again(self):
        raise self.retry(exc=ValueError("x"), countdown=0)

    process(again)
    message = fetch(app)

    assert "hardening_delivery" not in message.headers
    assert "hardening_delivery" not in message.properties


def test_the_body_does_not_see_the_raw_message(app) -> None:
    seen: list[object] = []

    @app.task(name="looks", bind=True, shared=False)
    def looks(self):
        seen.append(dict(self.request.properties))

    process(looks)

    assert "hardening_delivery" not in str(seen)


def test_outside_a_delivery_there_is_no_execution(app) -> None:
    inside: list[Any] = []

    @app.task(name="looks", bind=True, shared=False)
    def looks(self):
        inside.append(current())

    looks()
    looks.apply()
    process(looks, task_id="i")

    assert inside[:2] == [None, None]
    assert inside[2].task_id == "i"
    assert current() is None


@pytest.mark.parametrize("exc", [KeyboardInterrupt(), WorkerShutdown(0), GreenletExit()])
def test_what_is_meant_for_the_worker_or_its_greenlet_goes_through_untouched(exc, app) -> None:
    request = request_of(app, send(failing(app, exc)))

    with pytest.raises(type(exc)):
        trace_of(request)

    assert current() is None
    assert LETTERS == []
    CUT_OFF.clear()


@pytest.mark.parametrize("exc", [SystemExit(3), Backwards("odd"), asyncio.CancelledError()])
def test_another_base_exception_fails_the_task_and_neither_the_pool_nor_the_worker(exc, app) -> None:
    process(failing(app, exc))

    assert [(letter.reason, letter.last_attempt.error_class.rpartition(".")[2]) for letter in LETTERS] == [
        ("error", type(exc).__qualname__)
    ]
    assert EVENTS == ["letter error", "backend FAILURE"]


@pytest.mark.parametrize(("limit", "reasons"), [(30, []), (None, ["error"])])
def test_a_green_timeout_is_the_pools_where_a_limit_is_set_else_the_bodys(limit, reasons, app) -> None:
    request = request_of(app, send(failing(app, gevent.Timeout(1), time_limit=limit)))

    with nullcontext() if reasons else pytest.raises(gevent.Timeout):
        trace_of(request)

    assert [letter.reason for letter in LETTERS] == reasons


def test_an_exit_in_a_child_of_the_pool_ends_the_child(app, monkeypatch) -> None:
    request = request_of(app, send(failing(app, SystemExit(3))))
    monkeypatch.setattr("hardening.execution.os.getpid", lambda: -1)

    with pytest.raises(SystemExit):
        trace_of(request)

    assert LETTERS == []


def test_a_task_whose_greenlet_was_killed_is_not_acknowledged_though_celery_calls_it_done(app) -> None:
    request = request_of(app, send(failing(app, GreenletExit())))
    with pytest.raises(GreenletExit):
        trace_of(request)

    # What the gevent pool reports of a killed greenlet.
    request.on_success((False, None, None))

    assert request.answers.given == []
    request.acknowledge()  # As after a revoke: who ends the task for good still can.
    assert request.answers.given == ["ack"]


def test_a_reject_before_the_start_leaves_a_letter(app) -> None:
    class Refusing(Task):
        abstract = True

        def before_start(self, *args):
            raise Reject("not today", requeue=False)

    @app.task(name="refusing", base=Refusing, shared=False)
    def refusing(): ...

    request = process(refusing)

    assert [letter.reason for letter in LETTERS] == ["rejected"]
    assert request.answers.given == ["reject"]


def test_a_retry_before_the_start_that_the_broker_refuses_leaves_the_message_unacknowledged(app) -> None:
    class Retrying(Task):
        abstract = True

        def before_start(self, *args):
            cut_off(app)
            raise self.retry(exc=ValueError("later"), countdown=0)

    @app.task(name="retrying", base=Retrying, shared=False)
    def retrying(): ...

    request = process(retrying)

    assert LETTERS == []
    assert request.answers.given == []


def test_an_error_after_a_retry_was_sent_leaves_no_letter_since_the_work_goes_on(app) -> None:
    @app.task(name="swallowing", bind=True, shared=False)
    def swallowing(self):
        try:
            raise self.retry(exc=ValueError("first"), countdown=0)
        except Retry:
            raise KeyError("second") from None

    process(swallowing)

    assert LETTERS == []


def test_a_reject_that_used_up_its_retries_is_called_rejected(app) -> None:
    exc = Reject("no use", requeue=False)
    task = failing(app, exc, autoretry_for=(Exception,), retry_kwargs={"max_retries": 0})

    process(task)

    assert [letter.reason for letter in LETTERS] == ["rejected"]


def test_what_travels_to_the_child_shows_nothing_of_the_message_in_a_log(app) -> None:
    request = request_of(app, send(failing(app, ValueError()), "hunter22"))

    assert "hunter22" not in repr(request.request_dict["properties"])


@pytest.mark.parametrize("backend_down", [False, True])
def test_a_memory_error_ends_no_worker_and_the_message_comes_back(backend_down, app) -> None:
    task = failing(app, MemoryError("full"))
    request = request_of(app, send(task))
    task.backend.down = backend_down

    run(request)

    assert request.answers.given == ["requeue"]
    assert LETTERS == []
    assert EVENTS == []


def test_a_broken_letter_store_is_logged_with_the_task_and_without_its_arguments(app, caplog) -> None:
    task = failing(app, ValueError("x"))
    RecordingSink.down = True

    with caplog.at_level(logging.WARNING, "hardening"):
        process(task, "s3cr3t-argument", task_id="logged")

    records = [r for r in caplog.records if r.name == "hardening"]
    assert any(getattr(r, "task_id", None) == "logged" for r in records)
    assert "s3cr3t-argument" not in " ".join(r.getMessage() for r in records)


def test_an_error_of_a_retry_hook_leaves_no_letter_because_the_retry_lives_on(app) -> None:
    class Hooked(Task):
        name = "hooked"

        def on_retry(self, exc, task_id, args, kwargs, einfo):
            raise LookupError("in the hook")

        def run(self):
            raise self.retry(exc=ValueError("x"), countdown=0)

    app.register_task(Hooked())

    request = process(app.tasks["hooked"])

    assert waiting(app) == 1
    assert request.answers.given == ["ack"]
    assert LETTERS == []


@pytest.mark.parametrize("retries", ["many", None, [1], 1e300])
def test_a_retry_count_that_is_no_number_costs_no_letter(retries, app) -> None:
    message = send(failing(app, ValueError("x")))
    message.headers["retries"] = retries

    run(request_of(app, message))

    assert [letter.reason for letter in LETTERS] == ["error"]
    assert LETTERS[0].last_attempt.number >= 1


@pytest.mark.parametrize(
    "headers",
    [
        {"root_id": 5, "parent_id": [1], "group": {"a": 1}},
        {"hardening_key": 7, "hardening_replay": "x", "hardening_letter": {}},
        {"shadow": "another name"},
        {"argsrepr": None, "kwargsrepr": None, "origin": None},
        {1: "a number for a name"},
    ],
)
def test_odd_headers_cost_no_letter(headers, app) -> None:
    message = send(failing(app, ValueError("x")))
    message.headers.update(headers)

    run(request_of(app, message))

    assert len(LETTERS) == 1


def test_a_letter_that_cannot_be_put_together_is_kept_without_its_details(app, monkeypatch, caplog) -> None:
    def broken(*args, **kwargs):
        raise RuntimeError("a defect")

    monkeypatch.setattr("hardening.capture.Keeper.letter", broken)

    request = process(failing(app, ValueError("x")), 1, task_id="bare")

    assert request.answers.given == ["ack"]
    assert [(letter.task_id, letter.reason) for letter in LETTERS] == [("bare", "error")]
    assert LETTERS[0].payload.body.startswith(b"[[1], {}, ")
    assert LETTERS[0].last_attempt.error_class == "ValueError"
    assert "is kept without its details" in caplog.text
