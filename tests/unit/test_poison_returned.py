"""What is given back on purpose on RabbitMQ is noted for all workers, within bounds and never in the way."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from hardening.notes import MOST, Notes, notes_for
from hardening.poison.returned import RETURNED_KEY, note_returned, was_returned
from hardening.poison.work import digest_of
from hardening.store import LARGEST_BYTES, encoded
from tests.helpers.twin_messages import Clock, Message, Switchable, amqp_channel, redis_channel


class App:
    """Stands for a Celery app: it can be referred to weakly."""


@pytest.fixture
def clock() -> Clock:
    found = Clock()
    found.now = 1_000_000.0
    return found


@pytest.fixture
def store(clock: Clock) -> Switchable:
    return Switchable(clock)


@pytest.fixture
def app(store: Switchable, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("hardening.stores.patient.chosen_store", lambda app, settings: store)
    return App()


def digest(number: int) -> str:
    return sha256(str(number).encode()).hexdigest()


def message(task_id: str, channel: Any, *, redelivered: bool = False) -> Message:
    return Message(channel, headers={"id": task_id}, delivery_info={"redelivered": redelivered})


def test_what_one_worker_noted_another_finds(store: Switchable, clock: Clock) -> None:
    Notes(App(), "k", store=store, clock=clock).add([digest(1), digest(2)])  # type: ignore[arg-type]

    other = Notes(App(), "k", store=store, clock=clock)  # type: ignore[arg-type]

    assert [other.has(digest(number)) for number in (1, 2, 3)] == [True, True, False]


def test_the_newest_of_a_day_are_kept_in_one_small_document(store: Switchable, clock: Clock) -> None:
    mine = Notes(App(), "k", store=store, clock=clock)  # type: ignore[arg-type]
    for start in range(0, MOST + 500, 250):
        mine.add(digest(number) for number in range(start, start + 250))
        clock.now += 1200

    document = store.read("k").value

    assert document is not None
    assert len(encoded(document)) < LARGEST_BYTES
    assert [mine.has(digest(number)) for number in (0, 499, 500, MOST + 499)] == [False, False, True, True]
    clock.now += 25 * 3600
    assert not mine.has(digest(MOST + 499))


def test_an_old_note_makes_room_when_the_next_is_made(store: Switchable, clock: Clock) -> None:
    mine = Notes(App(), "k", store=store, clock=clock)  # type: ignore[arg-type]
    mine.add([digest(1)])
    for _ in range(3):
        clock.now += 9 * 3600
        mine.add([digest(2)])

    assert not mine.has(digest(1))
    assert mine.has(digest(2))
    document: Any = store.read("k").value
    assert [len(text) for text in document["hours"].values()] == [16]


def test_a_note_that_is_taken_is_there_no_more(store: Switchable, clock: Clock) -> None:
    mine = Notes(App(), "k", store=store, clock=clock)  # type: ignore[arg-type]
    mine.add([digest(1), digest(2)])

    assert [mine.take(digest(1)), mine.take(digest(1)), mine.has(digest(2))] == [True, False, True]


def test_the_same_is_not_written_again_within_an_hour(store: Switchable, clock: Clock) -> None:
    mine = Notes(App(), "k", store=store, clock=clock)  # type: ignore[arg-type]
    mine.add([digest(1)])
    asked = store.asked

    mine.add([digest(1), digest(1)])

    assert store.asked == asked
    mine.take(digest(1))
    mine.add([digest(1)])
    assert mine.has(digest(1))


@pytest.mark.parametrize("found", [{"hours": 3}, {"hours": {"x": "y", "3": 4}}, {}])
def test_what_somebody_else_put_in_its_place_is_written_over(
    store: Switchable, clock: Clock, found: dict[str, Any]
) -> None:
    store.swap("k", version=0, value=found, ttl_seconds=60)
    mine = Notes(App(), "k", store=store, clock=clock)  # type: ignore[arg-type]

    assert not mine.has(digest(1))
    mine.add([digest(1)])
    assert mine.has(digest(1))


def test_a_digest_across_two_others_is_not_found(store: Switchable, clock: Clock) -> None:
    mine = Notes(App(), "k", store=store, clock=clock)  # type: ignore[arg-type]
    one, two = digest(1)[:16], digest(2)[:16]
    mine.add([one, two])

    assert not mine.has(one[8:] + two[:8])


def test_a_store_that_is_down_is_asked_once_and_left_alone(
    store: Switchable, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    mine = Notes(App(), "k", store=store, clock=clock)  # type: ignore[arg-type]
    store.down = True
    for number in range(10):
        mine.add([digest(number)])
        assert not mine.has(digest(number))

    assert store.asked == 1
    assert len(caplog.records) == 1
    store.down = False
    clock.now += 6
    mine.add([digest(1)])
    assert mine.has(digest(1))


def test_only_messages_of_rabbitmq_are_noted(app: Any, store: Switchable) -> None:
    note_returned(app, [message("r", redis_channel("1"))], judged=True)
    assert store.asked == 0

    given = [message("a", amqp_channel()), message("b", amqp_channel(), redelivered=True)]
    note_returned(app, given, judged=True)

    assert [was_returned(app, digest_of(each)) for each in given] == [True, True]
    assert notes_for(app, RETURNED_KEY) is notes_for(app, RETURNED_KEY)


def test_a_redelivery_that_nobody_judged_is_not_noted(app: Any) -> None:
    given = [message("a", amqp_channel()), message("b", amqp_channel(), redelivered=True)]

    note_returned(app, given, judged=False)

    assert [was_returned(app, digest_of(each)) for each in given] == [True, False]
