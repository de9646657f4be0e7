"""Who tells the result backend never waits long, owes what is not told, and tells nothing outdated."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from celery import Celery, states
from celery.app.task import Context
from celery.backends.base import KeyValueStoreBackend
from celery.exceptions import Terminated
from celery.worker.state import revoked as revoked_tasks

from hardening.poison.request import info_of
from hardening.telling.outcome import Outcome
from hardening.telling.patience import LEFT_ALONE_LONGEST, LEFT_ALONE_SECONDS, Patience
from hardening.telling.teller import GRACE_SECONDS, NoAnswer, Teller, teller_for
from tests.helpers.hardened_apps import hardened_app, request_of, send
from tests.helpers.mishaps import within
from tests.helpers.wait import wait_until

GRACE = 0.2


class SlowBackend(KeyValueStoreBackend):
    """In memory, shared by all its instances. While it does not answer, whoever asks waits, in vain."""

    values: ClassVar[dict[Any, Any]] = {}
    answers: ClassVar[threading.Event] = threading.Event()
    used_by: ClassVar[set[int]] = set()
    odd: ClassVar[set[str]] = set()

    def get(self, key: Any) -> Any:
        self._wait()
        return self.values.get(key)

    def set(self, key: Any, value: Any) -> None:
        self._wait()
        if any(name in str(key) for name in self.odd):
            raise TypeError("odd")
        self.values[key] = value

    def _wait(self) -> None:
        self.used_by.add(threading.get_ident())
        if not self.answers.wait(5 * GRACE):
            raise ConnectionError("no answer")


@pytest.fixture
def app() -> Iterator[Celery]:
    SlowBackend.values.clear()
    SlowBackend.used_by.clear()
    SlowBackend.odd.clear()
    SlowBackend.answers.set()
    with Celery(
        "telling", broker="memory://", backend=f"{__name__}:SlowBackend", set_as_current=False
    ) as made:
        yield made


@pytest.fixture
def teller(app: Celery) -> Iterator[Teller]:
    made = Teller(app, grace=GRACE, most=3)
    made.start()
    yield made
    SlowBackend.answers.set()
    made.close()


def outcome(app: Celery, task_id: str = "a", state: str = states.FAILURE, **more: Any) -> Outcome:
    context = Context(id=task_id, task="work", **more.pop("fields", {}))
    return Outcome(app, context, ValueError("x"), state, **more).result().chord().rest()


def state(app: Celery, task_id: str = "a") -> str:
    return str(app.backend.get_task_meta(task_id, cache=False)["status"])


def test_after_a_silence_the_backend_is_left_alone_longer_and_longer() -> None:
    patience, now, pauses = Patience(), 100.0, []
    assert patience.allows(now)
    patience.lost()
    assert not patience.allows(now + 1e9)
    for _ in range(10):
        patience.failed(now)
        pauses.append(patience.seconds_from - now)
    assert pauses[:3] == [LEFT_ALONE_SECONDS, 2 * LEFT_ALONE_SECONDS, 4 * LEFT_ALONE_SECONDS]
    assert pauses[-1] == LEFT_ALONE_LONGEST
    patience.answered()
    assert patience.allows(now)


def test_what_is_told_in_time_is_told_when_the_call_returns_by_a_thread_with_its_own_backend(
    app, teller
) -> None:
    assert teller.tell(outcome(app)) is True

    assert threading.get_ident() not in SlowBackend.used_by
    assert state(app) == states.FAILURE


def test_one_silence_is_waited_for_once_and_all_is_told_when_it_ends(app, teller) -> None:
    SlowBackend.answers.clear()
    with within(2 * GRACE):
        assert teller.tell(outcome(app, "a")) is False
    with within(GRACE / 2):
        assert teller.tell(outcome(app, "b")) is False
        with pytest.raises(NoAnswer):
            teller.ask(lambda: 1)

    SlowBackend.answers.set()

    wait_until(lambda: (state(app, "a"), state(app, "b")) == (states.FAILURE, states.FAILURE))
    wait_until(lambda: len(teller) == 0)
    assert teller.ask(lambda: 1) == 1


def test_a_question_is_answered_raises_its_own_error_or_is_given_up_in_time(teller) -> None:
    assert teller.ask(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        teller.ask(lambda: 1 // 0)
    wait_until(lambda: teller._patience.allows(time.monotonic()))
    end = threading.Event()
    with within(2 * GRACE), pytest.raises(NoAnswer):
        teller.ask(end.wait)
    end.set()


def test_of_too_many_owed_the_oldest_is_dropped_by_name_and_at_the_end_all(app, teller, caplog) -> None:
    SlowBackend.answers.clear()
    for task_id in ("a", "b", "c", "d"):
        teller.tell(outcome(app, task_id))
    wait_until(lambda: "more than 3 are owed" in caplog.text)
    [dropped] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "work[" in dropped.getMessage()

    with within(2):
        teller.close(0.5)

    assert "how 3 messages ended is not told to the result backend (the worker ends)" in caplog.text


def test_errbacks_are_sent_once_however_often_the_backend_is_silent(app, teller) -> None:
    called = []

    @app.task(name="errback", shared=False)  # type: ignore[untyped-decorator]
    def errback(request: Any, exc: Any, traceback: Any) -> None:
        called.append(str(exc))

    SlowBackend.answers.clear()
    teller.tell(outcome(app, fields={"errbacks": [dict(errback.s())]}))
    wait_until(lambda: called)
    SlowBackend.answers.set()
    wait_until(lambda: len(teller) == 0)

    assert (called, state(app)) == (["x"], states.FAILURE)


def test_whose_patience_ends_while_errbacks_are_sent_keeps_nothing_from_being_told(app, teller) -> None:
    """Nobody learns from such a piece of work whether the backend answers: it was left alone, as silent."""
    fails, sent = threading.Event(), threading.Event()

    @app.task(name="errback", shared=False)  # type: ignore[untyped-decorator]
    def errback(request: Any, exc: Any, traceback: Any) -> None:
        sent.wait(10)

    def question() -> None:
        fails.wait(10)
        raise ConnectionError("no answer")

    def ask() -> None:
        with pytest.raises(ConnectionError):
            teller.ask(question)

    made = outcome(app, fields={"errbacks": [dict(errback.s())]})
    asking, telling = threading.Thread(target=ask), threading.Thread(target=teller.tell, args=(made,))
    asking.start()
    wait_until(lambda: teller._current is not None)
    telling.start()
    wait_until(lambda: teller._new)
    fails.set()
    asking.join()
    telling.join()
    assert teller._patience.seconds_from == float("inf")

    sent.set()

    wait_until(lambda: state(app) == states.FAILURE)


def test_an_errback_that_exits_ends_only_itself(app, teller, caplog) -> None:
    @app.task(name="errback", shared=False)  # type: ignore[untyped-decorator]
    def errback(request: Any, exc: Any, traceback: Any) -> None:
        sys.exit(1)

    assert teller.tell(outcome(app, fields={"errbacks": [dict(errback.s())]}))
    assert teller.tell(outcome(app, "b"))

    assert "could not be told" in caplog.text
    assert (state(app, "a"), state(app, "b")) == (states.FAILURE, states.FAILURE)


def test_a_backend_that_cannot_be_asked_how_a_task_stands_is_told_all_the_same(app, monkeypatch) -> None:
    def is_only_written_to(*_: Any, **__: Any) -> None:
        raise NotImplementedError

    made = outcome(app)
    with monkeypatch.context() as patched:
        patched.setattr(app.backend, "get_task_meta", is_only_written_to)
        assert made.tell() is None

    assert state(app) == states.FAILURE


def test_the_result_of_the_head_of_a_chain_keeps_what_an_extended_one_says(app) -> None:
    app.conf.result_extended = True
    tail = {"task": "tail", "args": [], "kwargs": {}, "options": {"task_id": "z"}}

    assert outcome(app, fields={"chain": [tail], "args": [1], "kwargs": {}}).tell() is None

    head = app.backend.get_task_meta("a", cache=False)
    assert (head["name"], head["args"], head["status"]) == ("work", [1], states.FAILURE)
    assert state(app, "z") == states.FAILURE


def test_what_the_backend_will_never_take_is_logged_and_not_owed(app, teller, caplog) -> None:
    SlowBackend.odd.add("a")

    assert teller.tell(outcome(app)) is True

    assert "could not be told" in caplog.text
    assert len(teller) == 0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("stored", "told", "late", "expected"),
    [
        ("SUCCESS", "FAILURE", False, "SUCCESS"),
        ("SUCCESS", "FAILURE", True, "SUCCESS"),
        ("REVOKED", "FAILURE", False, "FAILURE"),
        ("REVOKED", "FAILURE", True, "REVOKED"),
        ("STARTED", "FAILURE", True, "FAILURE"),
        ("RETRY", "FAILURE", True, "FAILURE"),
        ("STARTED", "RETRY", True, "STARTED"),
    ],
)
def test_a_result_takes_the_place_of_none_that_came_after_it(app, stored, told, late, expected) -> None:
    clock = Clock()
    made = outcome(app, state=told, clock=clock)
    value: Any = ValueError("y") if stored in states.EXCEPTION_STATES else {}
    app.backend.store_result("a", value, stored)
    clock.now = 60.0 * late

    assert made.tell() is None

    assert state(app) == expected


def test_one_that_was_half_told_is_told_to_its_end(app) -> None:
    """Its own result, of whose storing no answer came, is not taken for somebody else's."""
    clock, parts = Clock(), []

    def count(request: Any, *_: Any) -> None:
        parts.append(request.id)
        if len(parts) == 1:
            raise ConnectionError("no answer")

    app.backend.on_chord_part_return = count
    made = outcome(app, clock=clock, fields={"chord": {"task": "body"}, "group": "g"})
    assert isinstance(made.tell(), ConnectionError)
    clock.now = 60.0

    assert made.tell() is None

    assert parts == ["a", "a"]


def test_a_child_tells_by_itself_though_the_thread_is_in_the_midst_of_waiting(app, teller) -> None:
    SlowBackend.answers.clear()
    teller.tell(outcome(app))
    with within(1):
        child = os.fork()
    if child == 0:
        SlowBackend.answers = threading.Event()
        SlowBackend.answers.set()
        told = teller.tell(outcome(app, "b")) and state(app, "b") == states.FAILURE
        os._exit(0 if told and len(teller) == 0 else 1)
    with within(5):
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(teller) == 1


def _revoked(request: Any) -> None:
    revoked_tasks.add(request.id)
    try:
        assert request.revoked()
    finally:
        revoked_tasks.discard(request.id)


def _failed(exc: Exception) -> Callable[[Any], None]:
    return lambda request: request.on_failure(info_of(exc))


ENDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "revoked": (_revoked, states.REVOKED),
    "terminated": (_failed(Terminated(15)), states.REVOKED),
    "expired": (lambda request: request.revoked(), states.REVOKED),
    "an error of the pool": (_failed(RuntimeError("x")), states.FAILURE),
    "hard time limit": (lambda request: request.on_timeout(False, 3), states.FAILURE),
    "cancelled": (lambda request: request._announce_cancelled(), states.RETRY),
}


@pytest.mark.usefixtures("isolated", "recording", "app")
@pytest.mark.parametrize("how", ENDS)
def test_however_a_request_ends_in_the_parent_a_silent_backend_keeps_it_for_a_moment(how) -> None:
    made: Any = hardened_app(backend=f"{__name__}:SlowBackend")
    end, expected = ENDS[how]

    @made.task(name="work", shared=False)
    def work(): ...

    request = request_of(made, send(work, expires=-5 if how == "expired" else None))
    teller_for(made).start()
    SlowBackend.answers.clear()
    with within(2 * GRACE_SECONDS):
        end(request)
    assert threading.get_ident() not in SlowBackend.used_by
    assert request.answers.given == ([] if how == "cancelled" else ["ack"])

    SlowBackend.answers.set()

    wait_until(lambda: state(made, request.id) == expected)
    teller_for(made).close()
