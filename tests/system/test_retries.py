"""A failed attempt is followed by the next one, or by a letter, as its error and its policy say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chord, group, signature

from dlq.models import DeadLetter
from hardening import RetryPolicy
from tests.helpers.failing_http import FailingHttp
from tests.helpers.wait import wait_until

from .stage import COMBINATIONS, Sent, Stage

LATE = 3.0
"""Seconds that a busy machine may be late."""


PLAIN = (
    "flaky",
    "down_for_long",
    "down_on_schedule",
    "backing_off",
    "counting_down",
    "broad",
    "rejecting",
    "ageing",
    "unknown",
    "misfit",
    "acknowledged_early",
)


@pytest.fixture(scope="module")
def http() -> Iterator[FailingHttp]:
    with FailingHttp() as server:
        yield server


@pytest.fixture(scope="module", params=COMBINATIONS, ids="-".join)
def running(request: pytest.FixtureRequest, new_stage: Callable[..., Any]) -> Iterator[Stage]:
    """One worker of each kind, shared by the tests below; each uses task ids of its own."""
    broker, pool = request.param
    with new_stage(broker) as stage:
        stage.pool = pool
        stage.worker(pool=pool, concurrency=4)
        yield stage


@pytest.fixture(scope="module")
def moment(running: Stage) -> datetime:
    """A time that some tasks are told to wait for; a whole second, as HTTP has it."""
    return datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4)


@pytest.fixture(scope="module")
def crowd(running: Stage, http: FailingHttp, moment: datetime) -> dict[str, Sent]:
    """What the tests below look at, sent at one time so that all their delays pass together."""
    calls: dict[str, tuple[Any, ...]] = {
        "retry after": ("fetch", http.answering(503, retry_after=1)),
        "retry after date": ("fetch", http.answering(429, retry_after=format_datetime(moment, usegmt=True))),
        "retry after an hour": ("fetch_soon", http.answering(503, retry_after=3600)),
        "wrong arguments": ("strict", 1),
        "later": ("later", 1.5),
        "later at": ("later", moment.isoformat()),
        **{name: (name,) for name in PLAIN},
    }
    return {name: running.send(*call) for name, call in calls.items()}


def starts(stage: Stage, sent: Sent) -> list[tuple[int, float]]:
    """The retry count and the time of each start of a task's body."""
    lines = [line.split() for line in stage.effects() if sent.id in line.split()[1:2]]
    return [(int(line[2]), float(line[3])) for line in lines if line[0] != "carried"]


def gaps(stage: Stage, sent: Sent) -> list[float]:
    times = [at for _, at in starts(stage, sent)]
    return [after - before for before, after in pairwise(times)]


def counts(stage: Stage, sent: Sent) -> list[int]:
    return [retries for retries, _ in starts(stage, sent)]


def ends_once(stage: Stage, sent: Sent, reason: str) -> DeadLetter:
    """The letter of a task that was tried once."""
    letter = stage.letter_of(sent)
    stage.state_of(sent, "FAILURE")
    assert letter.reason == reason
    assert [attempt.number for attempt in stage.attempts(letter)] == [1]
    assert len(starts(stage, sent)) <= 1
    return letter


def judged(stage: Stage, letter: DeadLetter) -> list[tuple[int, str, str]]:
    return [(attempt.number, attempt.verdict, attempt.rule) for attempt in stage.attempts(letter)]


def test_celerys_polling_task_of_a_chord_goes_on_as_celery_has_it(
    new_stage: Callable[..., Any], tmp_path: Path
) -> None:
    # Results in files: there Celery polls for the members, by a task of its own that retries itself.
    with new_stage("redis") as stage:
        stage.result_url = f"file://{tmp_path}"
        stage.sender = Celery(
            "sender", broker=stage.broker_url, backend=stage.result_url, set_as_current=False
        )
        stage.worker()
        app = stage.sender
        header = group(signature("succeed", args=(1,), app=app), signature("flaky", args=(2,), app=app))

        body = stage.sent(chord(header, signature("add", app=app), app=app).apply_async())

        stage.state_of(body, "SUCCESS")
        assert app.backend.get_task_meta(body.id, cache=False)["result"] == 3
        assert stage.letters() == []


def test_a_passing_error_is_tried_again_and_the_attempts_travel_with_the_message(
    running: Stage, crowd: dict[str, Sent]
) -> None:
    sent = running.state_of(crowd["flaky"], "SUCCESS")

    assert counts(running, sent) == [0, 1, 2]
    assert running.effects(f"carried {sent.id}") == [f"carried {sent.id} 1:ConnectionError 2:ConnectionError"]
    assert running.letters(task_id=sent.id) == []


def test_retries_end_at_the_limit_and_wait_as_long_as_the_policy_says(
    running: Stage, crowd: dict[str, Sent]
) -> None:
    sent = crowd["down_for_long"]
    policy = RetryPolicy(base=0.3, cap=0.6, floor=0.2)

    letter = running.letter_of(sent)

    running.state_of(sent, "FAILURE")
    assert letter.reason == "retries_exhausted"
    assert judged(running, letter) == [(n, "transient", "python.connection") for n in (1, 2, 3, 4)]
    for attempt, gap in enumerate(gaps(running, sent), 1):
        low, high = policy.bounds(attempt)
        assert low <= gap <= high + LATE


def test_a_list_of_delays_is_followed_and_counted(running: Stage, crowd: dict[str, Sent]) -> None:
    sent = crowd["down_on_schedule"]

    assert running.letter_of(sent).reason == "retries_exhausted"
    first, second = gaps(running, sent)
    assert 0.2 <= first <= 0.2 + LATE
    assert 0.7 <= second <= 0.7 + LATE


def test_retry_after_in_seconds_is_obeyed(running: Stage, crowd: dict[str, Sent]) -> None:
    sent = crowd["retry after"]

    letter = running.letter_of(sent)

    assert letter.reason == "retries_exhausted"
    assert judged(running, letter) == [(n, "transient", "http.status 503") for n in (1, 2)]
    assert 1.0 <= gaps(running, sent)[0] <= 2.0 + LATE


def test_retry_after_as_a_date_is_obeyed(running: Stage, crowd: dict[str, Sent], moment: datetime) -> None:
    sent = crowd["retry after date"]

    letter = running.letter_of(sent)

    assert judged(running, letter) == [(n, "transient", "http.status 429") for n in (1, 2)]
    assert starts(running, sent)[1][1] >= moment.timestamp()


def test_a_retry_after_beyond_the_cap_is_cut_to_it(running: Stage, crowd: dict[str, Sent]) -> None:
    sent = crowd["retry after an hour"]

    assert running.letter_of(sent).reason == "retries_exhausted"
    assert 1.0 <= gaps(running, sent)[0] <= 2.0 + LATE


def test_wrong_arguments_end_at_the_first_attempt(running: Stage, crowd: dict[str, Sent]) -> None:
    letter = ends_once(running, crowd["wrong arguments"], "permanent")

    assert judged(running, letter) == [(1, "permanent", "arguments")]
    assert starts(running, crowd["wrong arguments"]) == []


def test_a_retry_by_hand_follows_the_policy_and_not_celerys_three_minutes(
    running: Stage, crowd: dict[str, Sent]
) -> None:
    sent = running.state_of(crowd["backing_off"], "SUCCESS")

    assert gaps(running, sent)[0] <= 1.0 + LATE


def test_a_retry_by_hand_keeps_its_own_countdown(running: Stage, crowd: dict[str, Sent]) -> None:
    sent = running.state_of(crowd["counting_down"], "SUCCESS")

    assert 0.7 <= gaps(running, sent)[0] <= 0.8 + LATE


def test_a_defect_is_not_repeated_because_autoretry_names_every_exception(
    running: Stage, crowd: dict[str, Sent]
) -> None:
    letter = ends_once(running, crowd["broad"], "permanent")

    assert letter.error_class == "KeyError"


def test_a_rejection_is_not_repeated_because_autoretry_names_every_exception(
    running: Stage, crowd: dict[str, Sent]
) -> None:
    ends_once(running, crowd["rejecting"], "rejected")


def test_a_task_without_a_limit_of_retries_ends_at_its_age(running: Stage, crowd: dict[str, Sent]) -> None:
    sent = crowd["ageing"]

    letter = running.letter_of(sent)

    assert letter.reason == "max_age"
    assert len(starts(running, sent)) >= 2
    # The next try would have come after 2 s, and no delay is longer than the 0.5 s of the project's cap.
    assert 1.4 <= letter.failed_at.timestamp() - sent.at <= 2.0 + LATE


def test_a_task_says_in_how_many_seconds_it_wants_to_be_tried_again(
    running: Stage, crowd: dict[str, Sent]
) -> None:
    sent = running.state_of(crowd["later"], "SUCCESS")

    assert 1.5 <= gaps(running, sent)[0] <= 2.5 + LATE


def test_a_task_says_when_it_wants_to_be_tried_again(
    running: Stage, crowd: dict[str, Sent], moment: datetime
) -> None:
    sent = running.state_of(crowd["later at"], "SUCCESS")

    assert starts(running, sent)[1][1] >= moment.timestamp()


def test_an_error_that_no_rule_knows_is_tried_three_times(running: Stage, crowd: dict[str, Sent]) -> None:
    sent = crowd["unknown"]

    letter = running.letter_of(sent)

    assert letter.reason == "unclassified"
    assert [(n, verdict) for n, verdict, _ in judged(running, letter)] == [(n, "unknown") for n in (1, 2, 3)]
    assert counts(running, sent) == [0, 1, 2]


def test_an_error_that_cannot_be_pickled_is_judged_under_its_own_name(
    running: Stage, crowd: dict[str, Sent]
) -> None:
    letter = running.letter_of(crowd["misfit"])

    assert letter.reason == "retries_exhausted"
    assert judged(running, letter) == [(n, "transient", "a misfit passes") for n in (1, 2)]
    assert {a.error_class for a in running.attempts(letter)} == {"tests.system.project.retrying.Misfit"}
    running.state_of(crowd["misfit"], "FAILURE")


def test_a_task_acknowledged_early_is_not_tried_again_unasked(running: Stage, crowd: dict[str, Sent]) -> None:
    ends_once(running, crowd["acknowledged_early"], "error")


def test_the_limit_of_one_call_of_retry_is_no_other_requests_limit(running: Stage) -> None:
    by_hand = running.send("limited", 3)
    wait_until(lambda: len(starts(running, by_hand)) > 1, 20, running.logs)
    by_celery, by_hand_too = running.send("limited"), running.send("limited", 2)

    for sent, attempts in ((by_hand, 4), (by_celery, 2), (by_hand_too, 3)):
        letter = running.letter_of(sent)
        assert (letter.reason, len(running.attempts(letter))) == ("retries_exhausted", attempts)


def test_a_chord_with_a_member_that_is_tried_again_completes(running: Stage) -> None:
    app = running.sender
    header = group(signature("succeed", args=(1,), app=app), signature("flaky", args=(2,), app=app))
    body = running.sent(chord(header, signature("add", app=app), app=app).apply_async())

    running.state_of(body, "SUCCESS")
    assert app.backend.get_task_meta(body.id, cache=False)["result"] == 3
