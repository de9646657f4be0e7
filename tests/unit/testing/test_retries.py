"""A rehearsal ends as a worker's deliveries would, and the assertions on it say what happens."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import celery
import pytest
import requests
from celery import shared_task
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry, SoftTimeLimitExceeded
from django.test import override_settings

import hardening
from hardening import Permanent, RetryLater, Transient
from hardening.core.identity import DUE_HEADER
from hardening.stores.memory import MemoryStore
from hardening.task import is_reached
from hardening.testing.retries import (
    CannotRehearse,
    assert_dead_letters,
    assert_done,
    assert_retries,
    rehearse,
)
from tests.helpers.hardened_apps import (
    EVENTS,
    LETTERS,
    cut_off,
    fetch,
    hardened_app,
    make_app,
    no_hardening,
    plain_app,
    process,
    request_of,
    run,
    waiting,
)

pytestmark = pytest.mark.usefixtures("isolated", "recording")

HOW_TO = Path(hardening.__file__).parent.parent / "docs" / "how-to" / "test-retries.md"

QUICK = {"delays": "0 s, 30 s", "max_attempts": 3}


@pytest.fixture
def app(settings):
    settings.HARDENING = {"DEAD_LETTER_SINK": {"BACKEND": "tests.helpers.hardened_apps.RecordingSink"}}
    return hardened_app()


@pytest.fixture
def plain(app):
    """A task that only returns."""

    @app.task(name="plain", shared=False)
    def plain(number=0):
        return number

    return plain


def http_error(status: int, **headers: str) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    response.headers.update(headers)
    return requests.HTTPError(f"answer {status}", response=response)


def failing(app, error, **options):
    """A task whose own body raises `error`."""

    @app.task(name=options.pop("name", "failing"), shared=False, **options)
    def failing(*args, **kwargs):
        raise error

    return failing


def in_a_worker(task, *args):
    """What becomes of a message in a worker: the delays, rounded, the letter's attempts and its reason."""
    LETTERS.clear()
    process(task, *args)
    delays = []
    while (message := fetch(task.app)) is not None:
        eta = message.headers["eta"]
        wait = (datetime.fromisoformat(eta) - datetime.now(UTC)).total_seconds() if eta else 0.0
        # A long wait is sent in stages; here its end has come.
        delays.append(round(message.headers.pop(DUE_HEADER, time.time() + wait) - time.time()))
        run(request_of(task.app, message))
    told = [(a.number, a.error_class, a.verdict, a.rule) for letter in LETTERS for a in letter.attempts]
    return delays, told, [letter.reason for letter in LETTERS]


def in_a_rehearsal(task, *args):
    rehearsal = rehearse(task, args)
    letters = [rehearsal.letter] if rehearsal.letter else []
    told = [(a.number, a.error_class, a.verdict, a.rule) for letter in letters for a in letter.attempts]
    return [round(delay) for delay in rehearsal.delays], told, [letter.reason for letter in letters]


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (ConnectionError("refused"), {}),
        (ConnectionError("refused"), {"max_retries": 1, "default_retry_delay": 7}),
        (ConnectionError("refused"), {"acks_late": False, "early_ack": "a test"}),
        (ValueError("who knows"), {}),
        (ValueError("asked for"), {"autoretry_for": (ValueError,), "retry_kwargs": {"countdown": 9}}),
        (ValueError("broad"), {"autoretry_for": (Exception,)}),
        (KeyError("a defect"), {"autoretry_for": (Exception,)}),
        (http_error(404), {}),
        (http_error(503), {}),
        (Permanent("never"), {}),
        (Transient("later"), {}),
        (Reject("no", requeue=False), {}),
        (Ignore(), {}),
        (Retry("by hand"), {}),
        (SoftTimeLimitExceeded(1), {}),
        (SystemExit(3), {}),
        (ValueError("own rule"), {"classify": {"ValueError": "transient"}}),
    ],
)
def test_a_rehearsal_ends_as_deliveries_to_a_worker_do(error, options, app) -> None:
    task = failing(app, error, **{"retry_policy": {**QUICK, "jitter": False}, **options})

    assert in_a_rehearsal(task, 1) == in_a_worker(task, 1)


def test_a_retry_by_hand_is_rehearsed_as_in_a_worker(app) -> None:
    @app.task(name="polling", bind=True, shared=False)
    def polling(self, left):
        if left:
            raise self.retry(args=(left - 1,), countdown=10 * left)
        return "there"

    assert in_a_rehearsal(polling, 3) == in_a_worker(polling, 3) == ([30, 20, 10], [], [])
    assert assert_done(polling, 3).result == "there"


def test_the_limit_in_a_call_of_retry_holds(app) -> None:
    @app.task(name="limited", bind=True, shared=False)
    def limited(self):
        try:
            raise ValueError("a")
        except ValueError as exc:
            self.retry(exc=exc, countdown=4, max_retries=2)

    assert_retries(limited, None, delays=[4, 4])
    assert_dead_letters(limited, None, reason="retries_exhausted", attempts=3)


def test_a_retry_without_an_error_gives_up_as_celery_does(app) -> None:
    @app.task(name="patient", bind=True, shared=False)
    def patient(self):
        self.retry(countdown=1, max_retries=1)

    rehearsal = rehearse(patient)

    assert rehearsal.reason == "retries_exhausted"
    assert isinstance(rehearsal.attempts[-1].error, MaxRetriesExceededError)


def test_a_retry_that_does_not_throw_is_followed_although_the_body_returns(app) -> None:
    @app.task(name="quiet", bind=True, shared=False)
    def quiet(self):
        if self.request.retries == 0:
            self.retry(exc=ConnectionError("x"), countdown=3, throw=False)

    assert assert_done(quiet).delays == (3,)


def test_a_call_of_retry_with_an_eta_waits_for_it(app) -> None:
    @app.task(name="tomorrow", bind=True, shared=False)
    def tomorrow(self):
        self.retry(exc=ConnectionError("x"), eta=datetime.now(UTC) + timedelta(hours=1), max_retries=1)

    assert_retries(tomorrow, None, delays=[3600])


def test_a_404_dead_letters_at_its_first_attempt(plain) -> None:
    rehearsal: Any = assert_dead_letters(plain, http_error(404), reason="permanent")

    assert rehearsal.attempts[0].verdict.rule == "http.status"
    assert rehearsal.letter.task_name == "plain"


def test_a_503_is_retried_at_the_ranges_of_the_policy(plain) -> None:
    assert_retries(plain, http_error(503), delays=[(1, 5), (1, 10), (1, 20), ...])
    assert_retries(plain, http_error(503), delays=[(1, min(1800, 5 * 2**n)) for n in range(9)])


def test_another_side_that_names_a_wait_is_given_it(plain) -> None:
    assert_retries(plain, http_error(429, **{"Retry-After": "120"}), delays=[(120, 132), ...])


def test_retry_later_waits_as_long_as_it_says(plain) -> None:
    assert_retries(plain, RetryLater(300), delays=[(300, 330), ...])


def test_wrong_arguments_are_permanent(plain) -> None:
    rehearsal: Any = assert_dead_letters(plain, None, reason="permanent", args=(1, 2, 3))

    assert rehearsal.attempts[0].verdict.rule == "arguments"


def test_age_grows_with_the_delays_though_nobody_waits(app) -> None:
    task = failing(
        app, ConnectionError(), retry_policy={"delays": "1 h", "max_attempts": 99, "max_age": "150 m"}
    )

    assert_retries(task, None, delays=[3600, 3600])
    assert_dead_letters(task, None, reason="max_age", attempts=3)


def test_settings_that_are_overridden_are_in_force(plain) -> None:
    rules = {"CLASSIFY": {"ValueError": "transient"}, "RETRY": {"DELAYS": "1 s, 2 s"}}

    assert_dead_letters(plain, ValueError("x"), reason="unclassified", attempts=3)
    with override_settings(HARDENING=rules):
        assert_retries(plain, ValueError("x"), delays=[1, 2])
        assert_dead_letters(plain, ValueError("x"), reason="retries_exhausted", attempts=3)
    assert_dead_letters(plain, ValueError("x"), reason="unclassified", attempts=3)


def test_each_attempt_may_raise_an_error_of_its_own(plain) -> None:
    errors = {1: ConnectionError("refused"), 2: None}

    rehearsal = rehearse(plain, raises=errors.get)

    assert rehearsal.ended == "done"
    assert [type(attempt.error) for attempt in rehearsal.attempts] == [ConnectionError, type(None)]


def test_a_class_is_raised_as_python_does(plain) -> None:
    assert_dead_letters(plain, KeyError, reason="permanent")


def test_the_body_is_given_back_after_it_was_replaced(app) -> None:
    @app.task(name="retrying", bind=True, shared=False, autoretry_for=(ValueError,), retry_backoff=True)
    def retrying(self, number):
        return number, self.request.retries

    assert_retries(retrying, ValueError("x"), delays=[(1, 1), (1, 2), ...])

    assert assert_done(retrying, 7).result == (7, 0)
    assert {"run", "_orig_run"} & set(retrying.__dict__) == {"run", "_orig_run"}
    assert not {"signature_from_request", "_backend"} & set(retrying.__dict__)


def test_arguments_are_what_a_message_makes_of_them(app) -> None:
    @app.task(name="typed", shared=False)
    def typed(pair):
        return type(pair).__name__

    assert assert_done(typed, (1, 2)).result == "list"


def test_an_ignore_is_told_apart_from_done_and_a_reject_with_requeue_is_tried_again(app) -> None:
    assert rehearse(failing(app, Ignore(), name="one")).ended == "ignored"
    put_back = rehearse(failing(app, Reject("x", requeue=True), name="two"))
    assert (put_back.ended, put_back.reason, len(put_back.attempts)) == (
        "dead_letter",
        "retries_exhausted",
        10,
    )
    with pytest.raises(AssertionError, match="ignored by the task"):
        assert_done(app.tasks["one"])


def test_what_ends_more_than_the_task_ends_the_rehearsal(app) -> None:
    with pytest.raises(MemoryError):
        rehearse(failing(app, MemoryError()))


def test_a_task_that_is_retried_for_ever_is_stopped(app) -> None:
    task = failing(app, ConnectionError(), retry_policy={"delays": "0 s", "max_attempts": float("inf")})

    rehearsal = rehearse(task, max_attempts=20)

    assert (rehearsal.ended, rehearsal.runs) == ("unfinished", 20)
    assert_retries(task, None, delays=[0, 0, 0, ...])
    with pytest.raises(AssertionError, match="still retried when the rehearsal stopped"):
        assert_dead_letters(task, None, attempts=None)


def test_nothing_leaves_the_process(app) -> None:
    @app.task(name="telling", bind=True, shared=False)
    def telling(self):
        self.update_state(state="HALFWAY")
        raise ConnectionError("refused")

    rehearse(telling)
    cut_off(app)
    rehearse(telling)

    assert (EVENTS, LETTERS) == ([], [])


def test_nothing_is_published(app) -> None:
    task = failing(app, ConnectionError("refused"))

    rehearse(task)

    task.delay()
    assert waiting(app) == 1


def test_the_body_sees_itself_as_the_running_task(app) -> None:
    @app.task(name="looking", bind=True, shared=False)
    def looking(self):
        request = self.request
        return celery.current_task.name, request.id is not None, request.called_directly, request.retries

    assert assert_done(looking).result == ("looking", True, False, 0)
    assert celery._state.get_current_task() is None


def test_a_call_of_the_projects_own_keeps_its_request(app) -> None:
    class Wrapped(celery.Task):
        def __call__(self, *args, **kwargs):
            return ["around", super().__call__(*args, **kwargs)]

    @app.task(base=Wrapped, name="wrapped", bind=True, shared=False)
    def wrapped(self):
        if self.request.retries == 0:
            raise ConnectionError("refused")
        return self.request.retries

    assert assert_done(wrapped).result == ["around", 1]


def test_a_shared_task_is_rehearsed_in_its_app(app) -> None:
    app.set_current()

    @shared_task(name="rehearsed.shared")
    def shared():
        return 1

    assert assert_done(shared).result == 1


def test_an_app_that_was_not_hardened_yet_is_hardened_first(settings) -> None:
    settings.HARDENING = {}
    with no_hardening():
        app = plain_app()
        task = failing(app, ConnectionError("refused"))
        app.finalize()

    assert_retries(task, None, delays=[(1, 5), ...])


def test_an_app_in_report_mode_cannot_be_rehearsed_and_is_left_alone(settings) -> None:
    settings.HARDENING = {"MODE": "report"}
    task = failing(make_app("reporting"), ValueError("x"))

    with pytest.raises(CannotRehearse, match="report"):
        rehearse(task)

    assert not is_reached(type(task.app.tasks["failing"]))


def test_an_outage_parks_without_an_attempt_where_a_store_is_given(app) -> None:
    runs = []

    @app.task(name="paying", shared=False, dependency="bank", retry_policy={"max_attempts": 22})
    def paying():
        runs.append(1)
        if len(runs) <= 24:
            raise ConnectionError("down")

    alone = rehearse(paying)
    runs.clear()
    stored = rehearse(paying, store=MemoryStore())

    assert (alone.ended, alone.runs, [a for a in alone.attempts if a.parked]) == ("dead_letter", 22, [])
    assert (stored.ended, stored.runs) == ("done", 20)
    assert [attempt.number for attempt in stored.attempts if attempt.parked] == [20] * 5


def test_the_share_of_a_range_can_be_chosen(plain) -> None:
    error = ConnectionError("refused")

    assert rehearse(plain, raises=error, jitter="shortest").delays[:2] == (1, 1)
    assert rehearse(plain, raises=error, jitter=0.5).delays[:2] == (3, 5.5)
    assert rehearse(plain, raises=error).delays[:2] == (5, 10)
    wrongs: list[Any] = [2, "longer"]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="jitter"):
            rehearse(plain, raises=error, jitter=wrong)


@pytest.mark.parametrize(
    "delays",
    [[5, 10, ...], [(1, 5), (1, 10)], [(1, 5), (2, 10), ...], [(1, 5), (1, 11), ...], [], [(1, 5)] * 9],
)
def test_delays_that_are_not_the_policys_fail(delays, plain) -> None:
    with pytest.raises(AssertionError, match="not retried at these delays"):
        assert_retries(plain, ConnectionError("refused"), delays=delays)


def test_no_delays_means_never_retried(plain) -> None:
    assert_retries(plain, Permanent("x"), delays=[])


def test_what_is_no_delay_is_refused(plain) -> None:
    with pytest.raises(ValueError, match="give seconds"):
        assert_retries(plain, ConnectionError(), delays=[(10, 5)])


def test_a_failed_assertion_says_what_happens_and_what_decided(plain) -> None:
    with pytest.raises(AssertionError) as caught:
        assert_retries(plain, ValueError("odd"), delays=[30, (1, 99.5)])

    lines = str(caught.value).splitlines()
    assert lines[1:3] == ["  expected: [30, (1, 99.5)]", "  happens:  [(1, 5), (1, 10)]"]
    assert "  1. ValueError: odd -> unknown by none: attempt 1 of 3 failed, again in 5 s" in lines
    assert '  dead letter with the reason "unclassified", after 3 attempts in 15 s' in lines
    assert lines[-1].startswith("  policy: 10 attempts: 1-5 s")


def test_a_failed_assertion_about_a_letter_says_both_sides(plain) -> None:
    with pytest.raises(AssertionError) as caught:
        assert_dead_letters(plain, http_error(503), reason="permanent")

    text = str(caught.value)
    assert '  expected: a dead letter with the reason "permanent", after 1 attempt\n' in text
    assert "transient by http.status 503" in text
    assert 'dead letter with the reason "retries_exhausted", after 10 attempts' in text


def test_a_description_of_many_attempts_leaves_out_the_middle(app) -> None:
    task = failing(app, ConnectionError("refused"), retry_policy={"delays": "1 s", "max_attempts": 40})

    text = rehearse(task).describe()

    assert "... 28 more ..." in text
    assert "attempt 40 of 40" in text
    assert len(text.splitlines()) < 20


def test_an_error_without_a_readable_text_is_described(plain) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert "(its text cannot be read)" in rehearse(plain, raises=Mute()).describe()


def test_secrets_are_hidden_in_the_letter_as_in_a_worker(app) -> None:
    @app.task(name="signing", shared=False)
    def signing(password):
        return password

    letter = assert_dead_letters(signing, Permanent("not hunter2-hunter2"), args=("hunter2-hunter2",)).letter

    assert letter is not None
    attempt = letter.last_attempt
    assert "hunter2" not in attempt.message + attempt.traceback


def test_the_helpers_need_no_pytest() -> None:
    code = "import sys, hardening.testing.retries; sys.exit('pytest' in sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_file_in_the_how_to_holds(app, monkeypatch) -> None:
    source = re.findall(r"```python\n(.*?)```", HOW_TO.read_text(), re.DOTALL)[0]
    module: Any = ModuleType("shop.tasks")
    module.bank_charge = lambda order_id: None

    @app.task(name="shop.tasks.charge", shared=False)
    def charge(order_id):
        module.bank_charge(order_id)

    module.charge = charge
    package: Any = ModuleType("shop")
    package.tasks = module
    monkeypatch.setitem(sys.modules, "shop", package)
    monkeypatch.setitem(sys.modules, "shop.tasks", module)
    copied: dict = {}
    exec(source, copied)

    tests = {name: test for name, test in copied.items() if name.startswith("test_")}
    assert len(tests) == 5
    for name, test in tests.items():
        test(monkeypatch) if name == "test_an_error_that_passes_leaves_nothing" else test()
