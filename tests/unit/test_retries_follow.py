"""What a failed attempt sends in a worker: its retry, the same attempt once more, or nothing and a letter."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
import requests
from celery.app.task import Task
from celery.exceptions import MaxRetriesExceededError, Reject, Retry, SoftTimeLimitExceeded
from django.core.exceptions import ObjectDoesNotExist

from hardening import Permanent, RetryLater, Transient
from hardening.conf import load_settings
from hardening.core.identity import (
    ATTEMPTS_HEADER,
    DEPENDENCY_HEADER,
    DUE_HEADER,
    FIRST_HEADER,
    MOVED_HEADER,
    OFFERS_HEADER,
    PARKED_HEADER,
    RECOVERED_HEADER,
    SUSPECT_HEADER,
    first_moment,
)
from hardening.history import decode_history
from hardening.retries import outage
from hardening.retries.options import options_of
from hardening.retries.traffic import MOST_TAGS, OUTAGES_KEY, Traffic, traffic_for
from hardening.returning import Returning, returning_for
from hardening.store import StoreUnavailable, chosen_store
from hardening.stores.memory import MemoryStore
from tests.helpers.hardened_apps import (
    LETTERS,
    SINK,
    cut_off,
    fetch,
    hardened_app,
    make_app,
    process,
    request_of,
    run,
    send,
)

pytestmark = pytest.mark.usefixtures("isolated", "recording")

SINK_ONLY = {"DEAD_LETTER_SINK": SINK["DEAD_LETTER_SINK"]}
STORE = {"BACKEND": "hardening.stores.memory.MemoryStore"}


@pytest.fixture
def project(settings):
    """Sets HARDENING for a test; letters go to LETTERS."""

    def use(**more):
        settings.HARDENING = {**SINK_ONLY, "STORE": STORE, **more}

    use()
    return use


@pytest.fixture
def app(project):
    return hardened_app()


def failing(app, exc, **options):
    calls = []

    @app.task(name=options.pop("name", "failing"), bind=True, shared=False, **options)
    def failing(self, *args, **kwargs):
        calls.append(self.request.retries)
        raise exc

    failing.calls = calls
    return failing


def retry_of(app):
    """The message that was sent in place of the one just run."""
    return fetch(app)


def wait_in(message) -> float:
    if DUE_HEADER in message.headers:
        return float(message.headers[DUE_HEADER] - time.time())
    if message.headers["eta"] is None:
        return 0.0
    eta = datetime.fromisoformat(message.headers["eta"])
    return (eta - datetime.now(UTC)).total_seconds()


def eta_in(message) -> float:
    return (datetime.fromisoformat(message.headers["eta"]) - datetime.now(UTC)).total_seconds()


def life_of(task, *, most: int = 20):
    """Runs a task and each of its retries at once, and returns the requests."""
    requests = [process(task)]
    while (message := fetch(task.app)) is not None and len(requests) < most:
        requests.append(request_of(task.app, message))
        run(requests[-1])
    return requests


def test_a_transient_error_is_retried_although_nobody_asked(app) -> None:
    request = process(failing(app, ConnectionError("refused")), 1, kwargs={"key": "value"})

    message = retry_of(app)

    assert request.answers.given == ["ack"]
    assert LETTERS == []
    assert message.headers["id"] == request.id
    assert message.headers["retries"] == 1
    assert 0 < wait_in(message) <= 5
    assert message.payload[:2] == [[1], {"key": "value"}]


def test_the_next_message_carries_the_attempts_and_the_first_publish(app) -> None:
    before = time.time()
    requests = life_of(failing(app, ConnectionError("refused"), retry_policy={"max_attempts": 3}))

    letter = LETTERS[0]
    assert [(a.number, a.verdict, a.rule) for a in letter.attempts] == [
        (n, "transient", "python.connection") for n in (1, 2, 3)
    ]
    firsts = {first_moment(request.message.headers[FIRST_HEADER], request.id) for request in requests}
    [first] = firsts
    assert first is not None
    assert before - 1 < first <= time.time()
    assert letter.reason == "retries_exhausted"


def test_a_retry_was_taken_from_nobody_and_stays_one_of_a_suspect(app) -> None:
    message = send(failing(app, ConnectionError("refused")))
    message.headers |= {
        RECOVERED_HEADER: {"holder": "w1", "times": 1, "at": 1.0},
        OFFERS_HEADER: f"2 {message.headers['id']}",
        MOVED_HEADER: "roomy",
        SUSPECT_HEADER: True,
    }
    run(request_of(app, message))

    headers = retry_of(app).headers
    assert headers.keys().isdisjoint({RECOVERED_HEADER, OFFERS_HEADER})
    assert (headers[MOVED_HEADER], headers[SUSPECT_HEADER]) == ("roomy", True)


def test_a_permanent_error_is_a_letter_at_its_first_attempt(app) -> None:
    request = process(failing(app, KeyError("no such key")))

    assert [(letter.reason, letter.last_attempt.rule) for letter in LETTERS] == [
        ("permanent", "python.lookup")
    ]
    assert retry_of(app) is None
    assert request.answers.given == ["ack"]


def test_an_unknown_error_gets_three_attempts_and_a_letter_that_says_unclassified(app) -> None:
    task = failing(app, RuntimeError("what is this"))

    life_of(task)

    assert task.calls == [0, 1, 2]
    assert [letter.reason for letter in LETTERS] == ["unclassified"]


def test_permanent_wins_over_a_broad_autoretry(app) -> None:
    task = failing(app, TypeError("a bug"), autoretry_for=(Exception,), max_retries=5)

    life_of(task)

    assert task.calls == [0]
    assert [letter.reason for letter in LETTERS] == ["permanent"]


def test_permanent_wins_over_a_retry_by_hand(app) -> None:
    @app.task(name="by_hand", bind=True, shared=False)
    def by_hand(self):
        try:
            raise TypeError("a bug")
        except Exception as exc:
            raise self.retry(exc=exc, countdown=1) from exc

    life_of(by_hand)

    assert [(letter.reason, letter.last_attempt.error_class) for letter in LETTERS] == [
        ("permanent", "TypeError")
    ]


def test_the_limit_of_an_autoretry_for_a_named_unknown_error_is_its_authors(app) -> None:
    task = failing(app, ValueError("named"), autoretry_for=(ValueError,), max_retries=4)

    life_of(task)

    assert task.calls == [0, 1, 2, 3, 4]
    assert [letter.reason for letter in LETTERS] == ["retries_exhausted"]


@pytest.mark.parametrize("raised", [Reject("no", requeue=False), Reject(ConnectionError(), requeue=False)])
def test_a_reject_is_not_retried_by_a_broad_autoretry(app, raised) -> None:
    request = process(failing(app, raised, autoretry_for=(Exception,)))

    assert [letter.reason for letter in LETTERS] == ["rejected"]
    assert retry_of(app) is None
    assert request.answers.given == ["reject"]


def test_a_retry_by_hand_without_a_countdown_follows_the_backoff(app) -> None:
    @app.task(name="by_hand", bind=True, shared=False, retry_backoff=2, retry_jitter=False)
    def by_hand(self):
        raise self.retry(exc=ConnectionError())

    process(by_hand)
    first = retry_of(app)
    run(request_of(app, first))
    second = retry_of(app)

    assert 1 < wait_in(first) <= 2
    assert 3 < wait_in(second) <= 4


def test_a_countdown_given_by_hand_is_kept(app) -> None:
    @app.task(name="by_hand", bind=True, shared=False)
    def by_hand(self):
        raise self.retry(countdown=77)

    process(by_hand)

    assert 76 < wait_in(retry_of(app)) <= 77


def test_an_eta_given_by_hand_is_kept(app) -> None:
    @app.task(name="by_hand", bind=True, shared=False)
    def by_hand(self):
        raise self.retry(eta=datetime.now(UTC) + timedelta(seconds=50))

    process(by_hand)

    assert 48 < wait_in(retry_of(app)) <= 50


def test_arguments_given_to_a_retry_by_hand_travel(app) -> None:
    @app.task(name="by_hand", bind=True, shared=False)
    def by_hand(self, number):
        raise self.retry((number + 1,), countdown=1)

    process(by_hand, 1)

    assert retry_of(app).payload[0] == [2]


def test_a_backoff_above_ten_minutes_is_not_cut(app) -> None:
    task = failing(
        app, ConnectionError(), autoretry_for=(ConnectionError,), retry_backoff=900, retry_jitter=False
    )

    process(task)

    assert 890 < wait_in(retry_of(app)) <= 900


def test_without_an_error_the_retries_that_are_used_up_are_told_as_celery_tells_them(app) -> None:
    seen = []

    @app.task(name="by_hand", bind=True, shared=False, max_retries=0)
    def by_hand(self):
        try:
            raise self.retry(countdown=1)
        except MaxRetriesExceededError as exc:
            seen.append(exc)
            raise

    process(by_hand)

    assert len(seen) == 1
    assert [letter.reason for letter in LETTERS] == ["retries_exhausted"]


def test_a_limit_given_in_one_call_is_no_limit_of_the_next(app) -> None:
    @app.task(name="by_hand", bind=True, shared=False, max_retries=5)
    def by_hand(self):
        raise self.retry(exc=ConnectionError(), max_retries=0 if self.request.retries else None)

    process(by_hand)

    assert "override_max_retries" not in by_hand.__dict__
    assert not hasattr(by_hand, "override_max_retries")
    assert retry_of(app) is not None


def test_a_negative_limit_in_a_call_means_no_retry(app) -> None:
    @app.task(name="by_hand", bind=True, shared=False)
    def by_hand(self):
        raise self.retry(exc=ConnectionError(), max_retries=-1)

    process(by_hand)

    assert len(LETTERS) == 1


def test_a_retry_that_is_not_to_be_thrown_is_returned_and_sent(app) -> None:
    returned = []

    @app.task(name="by_hand", bind=True, shared=False)
    def by_hand(self):
        returned.append(self.retry(exc=ConnectionError(), throw=False))

    process(by_hand)

    assert isinstance(returned[0], Retry)
    assert retry_of(app) is not None
    assert LETTERS == []


def test_the_error_in_hand_speaks_for_an_unknown_one_that_the_author_made_of_it(app) -> None:
    class Ours(Exception):
        pass

    @app.task(name="by_hand", bind=True, shared=False)
    def by_hand(self):
        try:
            raise RetryLater(500)
        except RetryLater:
            raise self.retry(exc=Ours("wrapped")) from None

    process(by_hand)

    assert wait_in(retry_of(app)) > 499


def test_that_the_error_in_hand_is_permanent_does_not_overrule_the_author_who_made_another_of_it(app) -> None:
    class Ours(Exception):
        pass

    @app.task(name="by_hand", bind=True, shared=False)
    def by_hand(self):
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            raise self.retry(exc=Ours("wrapped")) from None

    process(by_hand)

    assert retry_of(app) is not None


@pytest.mark.parametrize("exc", [KeyError("not there yet"), ObjectDoesNotExist()])
def test_an_author_who_waits_by_hand_for_what_is_missing_is_not_overruled(app, exc) -> None:
    @app.task(name="by_hand", bind=True, shared=False, max_retries=1)
    def by_hand(self):
        try:
            raise exc
        except type(exc):
            raise self.retry(countdown=5) from None

    requests = life_of(by_hand)

    assert len(requests) == 2
    assert [letter.reason for letter in LETTERS] == ["retries_exhausted"]


def test_a_swallowed_retry_that_was_not_sent_does_not_pass_for_a_success(app) -> None:
    @app.task(name="swallowing", bind=True, shared=False)
    def swallowing(self):
        try:
            self.retry(exc=ConnectionError())
        except Exception:
            return 1

    request = request_of(app, _sent(swallowing))
    cut_off(app)
    run(request)

    assert request.answers.given == []
    assert len(returning_for(app)) == 1


def test_a_later_error_is_judged_by_itself_after_a_refused_retry_was_swallowed(app) -> None:
    @app.task(name="swallowing", bind=True, shared=False)
    def swallowing(self):
        try:
            raise self.retry(exc=TypeError("a bug"))
        except TypeError:
            pass
        raise ConnectionError

    process(swallowing)

    assert LETTERS == []
    assert retry_of(app) is not None


def test_a_retry_asked_for_in_a_failure_hook_is_not_sent_since_the_letter_is_kept(app) -> None:
    class Hooked(Task):
        abstract = True

        def on_failure(self, exc, *args):
            self.retry(exc=exc, countdown=1)

    process(failing(app, Permanent("no"), base=Hooked))

    assert [letter.reason for letter in LETTERS] == ["permanent"]
    assert retry_of(app) is None


def test_a_project_s_retry_that_takes_nothing_of_ours_is_passed_by(app) -> None:
    class Odd(Task):
        abstract = True

        def retry(self, exc=None, delay=4):  # type: ignore[override]
            raise AssertionError("not to be called by us")

    process(failing(app, ConnectionError(), base=Odd))

    assert retry_of(app) is not None
    assert LETTERS == []


@pytest.mark.parametrize("count", [0.0, 0.5, -3, "2", None, True])
def test_a_retry_count_that_is_none_counts_up_all_the_same(app, count) -> None:
    task = failing(app, ConnectionError(), retry_policy={"max_attempts": 3, "delays": "0 s"})
    message = _sent(task)
    message.headers["retries"] = count
    run(request_of(app, message))

    while (message := fetch(app)) is not None:
        run(request_of(app, message))

    assert len(task.calls) <= 3
    assert [letter.reason for letter in LETTERS] == ["retries_exhausted"]


def test_an_eager_call_inside_a_task_that_asks_for_its_retry_is_an_error_of_the_outer_one(app) -> None:
    inner = failing(app, ConnectionError(), name="inner", autoretry_for=(ConnectionError,))

    @app.task(name="outer", shared=False)
    def outer():
        inner.apply(throw=True)

    process(outer)

    assert retry_of(app).headers["task"] == "outer"


# Waits that are longer than a message may lie in a worker


def test_a_long_wait_is_sent_in_stages_and_its_attempt_runs_once_it_is_over(app) -> None:
    task = failing(app, RetryLater(3600))
    process(task)
    waiting = retry_of(app)
    assert 590 < eta_in(waiting) <= 600

    run(request_of(app, waiting))
    again = retry_of(app)

    assert task.calls == [0]
    assert again.headers["retries"] == 1
    assert again.headers[DUE_HEADER] == pytest.approx(waiting.headers[DUE_HEADER], abs=1)
    assert again.headers[ATTEMPTS_HEADER] == waiting.headers[ATTEMPTS_HEADER]
    assert again.headers[FIRST_HEADER] == waiting.headers[FIRST_HEADER]
    assert PARKED_HEADER not in again.headers

    again.headers[DUE_HEADER] = time.time() + 0.5
    run(request_of(app, again))
    assert task.calls == [0, 1]


def test_the_last_stage_is_as_long_as_what_is_left(app) -> None:
    task = failing(app, RetryLater(3600))
    process(task)
    message = retry_of(app)
    message.headers[DUE_HEADER] = time.time() + 100

    run(request_of(app, message))
    last = retry_of(app)

    assert 98 < eta_in(last) <= 100
    assert DUE_HEADER not in last.headers


@pytest.mark.parametrize("due", ["tomorrow", 10**15, float("nan"), -1])
def test_a_due_time_of_another_s_making_does_not_keep_a_task_waiting(app, due) -> None:
    task = failing(app, ConnectionError())

    process(task, headers={DUE_HEADER: due})

    assert task.calls == [0]


def test_on_redis_no_stage_is_longer_than_half_the_visibility_timeout() -> None:
    app = make_app(broker_transport_options={"visibility_timeout": 20})
    app.conf.broker_url = "redis://127.0.0.1:1/0"

    assert Traffic(app).longest_hop == 10


def test_a_tag_of_a_project_s_making_is_logged_in_one_line_and_without_a_password(
    app, project, caplog
) -> None:
    caplog.set_level("INFO")
    project(
        OUTAGE={"FAILURES": 1},
        CLASSIFY={"ConnectionError": {"verdict": "transient", "dependency": lambda exc: str(exc)}},
    )

    process(failing(app, ConnectionError("postgres://user:hidden1@host/db\nforged line")))

    ours = [record.getMessage() for record in caplog.records if record.name == "hardening"]
    assert any("is down" in line for line in ours)
    assert not [line for line in ours if "hidden1" in line or "\n" in line]


def test_retry_later_waits_as_long_as_it_says(app) -> None:
    process(failing(app, RetryLater(300)))

    assert 299 < wait_in(retry_of(app)) <= 331


def test_an_early_acknowledged_task_is_not_retried_on_its_own(app) -> None:
    process(failing(app, ConnectionError(), acks_late=False, early_ack="for the test"))

    assert [letter.reason for letter in LETTERS] == ["error"]


@pytest.mark.parametrize("exc", [Transient("later"), RetryLater(3)])
def test_an_early_acknowledged_task_that_asks_by_its_error_is_retried(app, exc) -> None:
    process(failing(app, exc, acks_late=False, early_ack="for the test"))

    assert retry_of(app) is not None
    assert LETTERS == []


def test_automatic_off_leaves_retries_to_those_who_ask(app, project) -> None:
    project(RETRY={"AUTOMATIC": False})

    process(failing(app, ConnectionError(), name="silent"))
    process(failing(app, ConnectionError(), name="asking", autoretry_for=(ConnectionError,)))

    assert [(letter.task_name, letter.reason) for letter in LETTERS] == [("silent", "error")]
    assert retry_of(app).headers["task"] == "asking"


def test_the_age_of_the_work_ends_endless_retries(app) -> None:
    task = failing(app, ConnectionError(), max_retries=None, retry_policy={"max_age": 60})

    process(task, headers={FIRST_HEADER: time.time() - 120})

    assert [letter.reason for letter in LETTERS] == ["max_age"]


def test_the_age_of_a_delayed_task_counts_from_its_eta(app) -> None:
    task = failing(app, ConnectionError(), retry_policy={"max_age": 60})

    process(task, headers={FIRST_HEADER: time.time() - 7200}, eta=datetime.now(UTC) - timedelta(seconds=1))

    assert LETTERS == []


@pytest.mark.parametrize("header", ["yesterday", -5, float("inf"), None, 10**12])
def test_a_first_publish_that_is_no_time_of_the_past_is_passed_over(app, header) -> None:
    process(failing(app, ConnectionError()), headers={FIRST_HEADER: header})

    assert LETTERS == []


@pytest.mark.parametrize("option", ["dont_autoretry_for", "throws"])
def test_an_error_that_its_author_wants_no_retry_for_gets_none(app, option) -> None:
    process(failing(app, ConnectionError(), **{option: (OSError,)}))

    assert [letter.reason for letter in LETTERS] == ["error"]


def test_a_broken_look_at_outages_admits(app, monkeypatch) -> None:
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(Traffic, "admit", broken)
    monkeypatch.setattr(Traffic, "succeeded", broken)

    @app.task(name="fine", shared=False)
    def fine():
        return 1

    assert process(fine).answers.given == ["ack"]
    assert LETTERS == []


def test_wrong_arguments_are_permanent_and_told_apart_from_a_bug(app) -> None:
    @app.task(name="two", shared=False, typing=False)
    def two(one, other): ...

    process(two, 1)

    assert [(letter.reason, letter.last_attempt.rule) for letter in LETTERS] == [("permanent", "arguments")]


def test_a_polling_task_of_celerys_own_is_left_alone(app) -> None:
    @app.task(name="celery.polling", bind=True, shared=False, max_retries=None, default_retry_delay=1)
    def polling(self):
        raise self.retry(countdown=1)

    process(polling, headers={FIRST_HEADER: time.time() - 10 * 86400})

    assert LETTERS == []
    assert retry_of(app).headers["retries"] == 1


def test_a_project_s_own_retry_is_used_for_retries_that_nobody_asked_for(app) -> None:
    class Counting(Task):
        abstract = True
        asked = []

        def retry(self, *args, **kwargs):
            self.asked.append(kwargs["countdown"])
            return super().retry(*args, **kwargs)

    process(failing(app, ConnectionError(), base=Counting))

    assert len(Counting.asked) == 1
    assert retry_of(app) is not None


def test_an_unpicklable_error_is_retried(app) -> None:
    class Unpicklable(ConnectionError):
        def __init__(self, one, two):
            super().__init__(one)
            self.two = two

    request = process(failing(app, Unpicklable("first", "second")))

    assert retry_of(app) is not None
    assert request.answers.given == ["ack"]


def test_retry_is_left_to_celery_in_an_eager_call(app) -> None:
    task = failing(app, ConnectionError("eager"), autoretry_for=(ConnectionError,), max_retries=2)

    outcome = task.apply()

    assert isinstance(outcome.result, ConnectionError)
    assert task.calls == [0, 1, 2]
    assert LETTERS == []


def overruled(task) -> list[str]:
    return [finding.what for finding in options_of(task).findings if finding.code == "CH016"]


def test_an_autoretry_for_what_is_permanent_is_a_finding(app) -> None:
    task = failing(app, KeyError(), autoretry_for=(KeyError, ConnectionError))

    assert ["KeyError" in what and "python.lookup" in what for what in overruled(task)] == [True]


@pytest.mark.parametrize(
    "options",
    [
        {"autoretry_for": (Exception,)},
        {"autoretry_for": (ConnectionError, requests.HTTPError, ValueError)},
        {"autoretry_for": (KeyError,), "classify": {"KeyError": "transient"}},
        {},
    ],
)
def test_an_autoretry_for_what_may_pass_is_none(app, options) -> None:
    assert overruled(failing(app, KeyError(), **options)) == []


# Dependencies


@pytest.fixture
def down(app, project, monkeypatch):
    """An app whose dependency "bank" is known to be down, and its store."""
    project(OUTAGE={"FAILURES": 1, "FIRST_WAIT": 100, "LONGEST_WAIT": 200})
    store = MemoryStore()
    monkeypatch.setattr("hardening.retries.traffic.chosen_store", lambda *_: store)
    process(failing(app, ConnectionError(), name="first", dependency="bank"))
    fetch(app)
    LETTERS.clear()
    return store


def test_a_failure_that_finds_its_dependency_down_uses_no_attempt(app, down) -> None:
    # Allowed to run before it was known.
    request = process(failing(app, ConnectionError(), name="second", dependency="bank", max_retries=0))

    message = retry_of(app)

    assert message.headers["retries"] == 0
    assert message.headers[PARKED_HEADER] == 1
    assert message.headers[DEPENDENCY_HEADER] == "bank"
    assert 99 < wait_in(message) <= 200
    assert request.answers.given == ["ack"]
    assert LETTERS == []


def test_a_task_is_put_back_before_its_body_runs_while_its_dependency_is_down(app, down) -> None:
    task = failing(app, ConnectionError(), name="second", dependency="bank")

    process(task)

    assert task.calls == []
    assert retry_of(app).headers["retries"] == 0


def test_a_message_that_failed_by_a_dependency_is_put_back_although_its_task_names_none(app, down) -> None:
    task = failing(app, ConnectionError(), name="untagged")

    process(task, headers={DEPENDENCY_HEADER: "bank"})

    assert task.calls == []


def test_a_failure_that_was_told_when_to_come_back_obeys_although_its_dependency_is_down(app, down) -> None:
    traffic_for(app)._snapshot = {}  # It runs before its process knows.
    task = failing(app, RetryLater(900), name="second", dependency="bank")

    process(task)

    assert task.calls == [0]
    assert wait_in(retry_of(app)) > 899


def test_a_success_since_the_latest_failure_begins_a_new_run(app, project) -> None:
    project(OUTAGE={"FAILURES": 2})
    task = failing(app, ConnectionError(), dependency="bank")

    @app.task(name="works", shared=False, dependency="bank")
    def works():
        return 1

    for each in (task, works, task, works, task):
        process(each)
        fetch(app)  # The retry.

    assert not outage.is_open(traffic_for(app)._snapshot["bank"])


def test_a_success_before_the_run_does_not_delay_the_outage(app, project) -> None:
    project(OUTAGE={"FAILURES": 2})

    @app.task(name="works", shared=False, dependency="bank")
    def works():
        return 1

    task = failing(app, ConnectionError(), dependency="bank")
    for each in (works, task, task):
        process(each)
        fetch(app)

    assert outage.is_open(traffic_for(app)._snapshot["bank"])


def test_what_is_put_back_keeps_its_attempts(app, down) -> None:
    task = failing(app, ConnectionError(), name="second", dependency="bank")
    history = '[[1,"ConnectionError","gone","","w",null,null]]'

    process(task, headers={ATTEMPTS_HEADER: history}, retries=1)

    message = retry_of(app)
    assert message.headers["retries"] == 1
    assert [a.error_class for a in decode_history(message.headers[ATTEMPTS_HEADER])] == ["ConnectionError"]


def test_being_put_back_ends_at_the_age_of_the_work(app, down) -> None:
    task = failing(app, ConnectionError(), name="old", dependency="bank", retry_policy={"max_age": 60})

    process(task)

    assert task.calls == []
    assert [letter.reason for letter in LETTERS] == ["max_age"]


def test_a_task_that_has_nothing_to_do_with_it_runs(app, down) -> None:
    task = failing(app, Permanent("ran"), name="other")

    process(task)

    assert task.calls == [0]


def test_the_outages_of_the_most_and_longest_dependencies_and_tasks_fit_into_the_store(app, project) -> None:
    project(OUTAGE={"FAILURES": 1})
    for tag in range(MOST_TAGS + 2):
        for name in range(14):
            process(
                failing(
                    app, ConnectionError(), name=f"{name}-{tag}-" + "n" * 230, dependency=f"{tag}" + "t" * 300
                )
            )
            fetch(app)

    outages = chosen_store(app, load_settings()[0]).read(OUTAGES_KEY).value or {}

    assert len(outages) == MOST_TAGS
    assert all(outage.is_open(each) for each in outages.values())


def test_one_success_ends_the_outage(app, down) -> None:
    @app.task(name="works", shared=False, dependency="bank")
    def works():
        return 1

    execution_free = traffic_for(app)
    outages = down.read(OUTAGES_KEY).value
    outages["bank"]["next_probe_at"] = 0.0
    assert down.swap(OUTAGES_KEY, version=down.read(OUTAGES_KEY).version, value=outages, ttl_seconds=100)
    execution_free._read_at = -100.0

    process(works)

    assert down.read(OUTAGES_KEY).value is None


def test_a_store_that_does_not_answer_admits_and_says_so(app, project, monkeypatch, caplog) -> None:
    class Down(MemoryStore):
        def read(self, key):
            raise StoreUnavailable("no store")

    monkeypatch.setattr("hardening.retries.traffic.chosen_store", lambda *_: Down())
    task = failing(app, ConnectionError(), dependency="bank")

    process(task)

    assert task.calls == [0]
    assert retry_of(app) is not None
    assert "everything is admitted" in caplog.text


def test_a_store_that_goes_on_not_answering_is_asked_less_and_less(app, project, monkeypatch) -> None:
    class Down(MemoryStore):
        asked = 0
        down = True

        def read(self, key):
            if Down.down:
                Down.asked += 1
                raise StoreUnavailable("no store")
            return super().read(key)

    now = [0.0]
    traffic = Traffic(app, store=Down(), clock=lambda: now[0])
    for second in range(300):
        now[0] = float(second)
        traffic.withdraw("t")
    assert Down.asked == 8  # At 0, 5, 15, 35, 75, then each minute.

    Down.down = False
    now[0] += 60
    traffic.withdraw("t")
    Down.down = True
    traffic.withdraw("t")
    now[0] += 5
    traffic.withdraw("t")
    assert Down.asked == 10


def test_a_tagless_app_asks_no_store_before_a_task_runs(app, monkeypatch) -> None:
    monkeypatch.setattr(Traffic, "_asked", lambda *_: pytest.fail("asked the store"))

    @app.task(name="fine", shared=False)
    def fine():
        return 1

    assert process(fine).answers.given == ["ack"]


def test_retries_over_the_budget_come_later_and_none_is_lost(app, project) -> None:
    project(RETRY_BUDGET={"SHARE": 0.0, "PER_SECOND": 0.1}, RETRY={"DELAYS": "0 s"})
    task = failing(app, ConnectionError())

    waits = []
    for _ in range(4):
        process(task)
        waits.append(wait_in(retry_of(app)))

    assert waits[0] < 1
    assert waits[-1] > 15


# Retries that cannot be sent


def test_a_retry_that_nobody_asked_for_and_the_broker_does_not_take_leaves_the_message(app) -> None:
    task = failing(app, ConnectionError())
    request = request_of(app, _sent(task))
    cut_off(app)

    run(request)

    assert request.answers.given == []
    assert LETTERS == []
    assert len(returning_for(app)) == 1


def test_a_message_that_waits_goes_back_when_its_retry_would_have_been_due() -> None:
    now = [0.0]
    returning = Returning(lambda: now[0])
    request = _Returned()

    returning.keep(request, 10)
    now[0] = 9.0
    returning.return_due()
    assert request.given == []
    now[0] = 10.0
    returning.return_due()
    returning.return_due()

    assert request.given == [True]


@pytest.mark.parametrize(("asked", "waits"), [(0.0, 2.0), (3600.0, 60.0)])
def test_a_message_goes_back_neither_at_once_nor_in_hours(asked, waits) -> None:
    now = [0.0]
    returning = Returning(lambda: now[0])
    request = _Returned()
    returning.keep(request, asked)

    now[0] = waits - 0.1
    returning.return_due()
    assert request.given == []
    now[0] = waits
    returning.return_due()

    assert request.given == [True]


class _Returned:
    name, id, delivery_tag = "a task", "an id", "a tag"
    acknowledged, channel, app = False, None, None

    def __init__(self) -> None:
        self.given: list[bool] = []
        self.message = self

    def reject(self, requeue: bool) -> None:
        self.given.append(requeue)


def _sent(task):
    task.apply_async()
    return fetch(task.app)


@pytest.mark.parametrize("where", ["hardening.execution.follow", "hardening.execution.send"])
def test_a_soft_time_limit_that_passes_while_a_retry_is_decided_or_sent_ends_no_work(
    app, monkeypatch, where
) -> None:
    module, _, name = where.rpartition(".")
    real = getattr(sys.modules[module], name)
    passed: list[bool] = []

    def interrupted(*args):
        if not passed:
            passed.append(True)
            raise SoftTimeLimitExceeded
        return real(*args)

    monkeypatch.setattr(where, interrupted)
    request = process(failing(app, ConnectionError()))

    assert passed
    assert LETTERS == []
    assert request.answers.given == ([] if name == "send" else ["ack"])
