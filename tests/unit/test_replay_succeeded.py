"""The success of what was sent again is told once it is one, and is found where it was not heard."""

from __future__ import annotations

from typing import Any

import pytest
from celery.exceptions import Ignore

from hardening import Permanent
from hardening.core.events import replay_succeeded
from hardening.core.identity import KEY_HEADER, LETTER_HEADER, REPLAY_HEADER
from hardening.core.successes import ReplayedWork
from hardening.twins.records import Records
from hardening.twins.replays import RecordedSuccesses
from hardening.twins.work import Work
from tests.helpers.hardened_apps import LETTERS, fetch, hardened_app, process, request_of, run
from tests.helpers.twin_fixtures import clock, store
from tests.helpers.twin_messages import LEASE_SECONDS, Clock, Message, Switchable

__all__ = ["clock", "store"]  # Fixtures.

pytestmark = [
    pytest.mark.usefixtures("isolated", "recording"),
    pytest.mark.filterwarnings("ignore:Exception raised outside body:RuntimeWarning"),
]
HEADERS = {KEY_HEADER: "work", REPLAY_HEADER: 2, LETTER_HEADER: "a letter"}


@pytest.fixture
def told() -> Any:
    heard: list[dict[str, Any]] = []

    def receive(sender: object, signal: object, **facts: Any) -> None:
        heard.append(facts)

    replay_succeeded.connect(receive)
    yield heard
    replay_succeeded.disconnect(receive)


def test_the_success_of_a_replay_is_told_with_its_identity(told) -> None:
    app = hardened_app()

    @app.task  # type: ignore[untyped-decorator]
    def works() -> int:
        return 1

    request = process(works, headers=HEADERS)

    assert told == [
        {
            "letter_id": "a letter",
            "task_id": request.id,
            "task_name": works.name,
            "delivery_key": "work",
            "replay_number": 2,
            "how": "returned",
        }
    ]


def test_other_work_tells_nothing(told) -> None:
    app = hardened_app()

    @app.task  # type: ignore[untyped-decorator]
    def works() -> int:
        return 1

    process(works)

    assert told == []


def test_a_replay_that_fails_or_whose_result_cannot_be_stored_tells_no_success(told) -> None:
    app = hardened_app()

    @app.task  # type: ignore[untyped-decorator]
    def fails() -> None:
        raise Permanent("again")

    @app.task  # type: ignore[untyped-decorator]
    def unfit() -> object:
        return object()

    process(fails, headers=HEADERS)
    process(unfit, headers=HEADERS)

    assert told == []
    assert [letter.reason for letter in LETTERS] == ["permanent", "result_not_serialisable"]


def test_a_replay_that_raises_ignore_tells_that_it_ended_and_one_that_sent_a_retry_does_not(told) -> None:
    app = hardened_app()

    @app.task(bind=True)  # type: ignore[untyped-decorator]
    def ignores(self: Any, again: bool) -> None:
        if again:
            self.retry(throw=False)
        raise Ignore

    request = process(ignores, False, headers=HEADERS)
    process(ignores, True, headers=HEADERS)

    assert [(each["task_id"], each["how"]) for each in told] == [(request.id, "ignored")]


def test_what_replaces_a_replay_has_its_outcome_and_several_tasks_answer_for_themselves(told) -> None:
    app = hardened_app()

    @app.task  # type: ignore[untyped-decorator]
    def does(fails: bool) -> None:
        if fails:
            raise Permanent("again")

    @app.task(bind=True)  # type: ignore[untyped-decorator]
    def replaced(self: Any, how: str) -> None:
        self.replace(does.si(False) | does.si(False) if how == "chain" else does.si(how == "fails"))

    first = process(replaced, "works", headers=HEADERS)
    assert told == []
    run(request_of(app, fetch(app)))
    assert [(each["task_id"], each["letter_id"], each["how"]) for each in told] == [
        (first.id, "a letter", "returned")
    ]

    second = process(replaced, "fails", headers=HEADERS)
    run(request_of(app, fetch(app)))
    assert [(letter.task_id, letter.replay_of) for letter in LETTERS] == [(second.id, "a letter")]

    third = process(replaced, "chain", headers=HEADERS)
    assert (told[-1]["task_id"], told[-1]["how"]) == (third.id, "ignored")
    assert len(told) == 2


def test_a_success_that_was_recorded_is_known_by_key_number_and_body(store: Switchable, clock: Clock) -> None:
    records = Records(None, lease_seconds=LEASE_SECONDS, store=store, clock=clock)  # type: ignore[arg-type]
    message = Message(None, headers={"id": "an id", "task": "a task", **HEADERS})
    records.record_success(Work.of(message))
    asked = RecordedSuccesses(None, records=records)  # type: ignore[arg-type]
    work = ReplayedWork(delivery_key="work", replay_number=2, body=message.body)

    assert asked.known([work]) == [True]
    assert asked.known(
        [
            ReplayedWork(delivery_key="other", replay_number=2, body=message.body),
            ReplayedWork(delivery_key="work", replay_number=3, body=message.body),
            ReplayedWork(delivery_key="work", replay_number=2, body=b"other"),
        ]
    ) == [False, False, False]
    store.down = True
    assert asked.known([work]) == [False]
