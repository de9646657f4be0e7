"""A worker and what RabbitMQ has dead-lettered: in which order it is settled, and what is not dead at all."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hardening.capture import LetterNotKept, keeper_for
from hardening.core.letter import DeadLetter, dump_letter
from hardening.intake import dead_lettered
from hardening.intake.dead_lettered import ASKED_EVERY_SECONDS, GRACE_SECONDS, LONGEST_WAIT_SECONDS, Intake
from hardening.intake.rejected import has_letter, note_kept
from hardening.twins.watch import Verdict
from tests.helpers.hardened_apps import EVENTS, LETTERS, SINK, hardened_app
from tests.helpers.twin_messages import Clock, Message, Switchable, amqp_channel

pytestmark = pytest.mark.usefixtures("isolated")


class Dead(Message):
    """A message in the queue of the dead."""

    content_type = "application/json"
    content_encoding = "utf-8"
    properties: dict[str, Any] = {}

    def ack_log_error(self, logger: Any, errors: Any) -> None:
        EVENTS.append("ack")
        super().ack_log_error(logger, errors)


def dead(reason: str = "rejected", *, queue: str = "orders", exchange: str = "", **headers: Any) -> Dead:
    entry = {"queue": queue, "reason": reason, "exchange": exchange, "routing-keys": [queue]}
    return Dead(
        amqp_channel(),
        headers={"id": "an id", "task": "a task", "x-death": [entry], **headers},
        delivery_info={"exchange": "celery_hardening.dlx", "routing_key": queue, "redelivered": False},
    )


@pytest.fixture
def stage(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A worker's intake; what its twins say is set by the test."""
    settings.HARDENING = SINK
    EVENTS.clear()
    LETTERS.clear()
    clock = Clock()
    store = Switchable(clock)
    monkeypatch.setattr("hardening.stores.patient.chosen_store", lambda app, settings: store)
    found = SimpleNamespace(clock=clock, store=store, verdict=Verdict.START, app=hardened_app())
    found.consumer = SimpleNamespace(app=found.app, hostname="w1@host", connection_errors=())
    twins = SimpleNamespace(standing=lambda message, consumer: found.verdict)
    monkeypatch.setattr(dead_lettered, "twins_for", lambda app: twins)
    found.intake = Intake(found.consumer, clock)
    return found


def refusing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A keeper that no store helps, until the list is emptied."""
    refused = [1]
    kept = keeper_for

    class Keeper:
        def __init__(self, app: Any) -> None:
            self.app = app

        def keep_and_close(self, letter: DeadLetter) -> None:
            if refused:
                refused.append(1)
                raise LetterNotKept(dump_letter(letter).decode())
            kept(self.app).keep_and_close(letter)

    monkeypatch.setattr(dead_lettered, "keeper_for", Keeper)
    return refused


def test_the_letter_comes_first_then_the_result_then_the_acknowledgement(stage: Any) -> None:
    stage.intake.take(dead(exchange="shop"))

    assert EVENTS == ["letter broker_rejected", "backend FAILURE", "ack"]
    [letter] = LETTERS
    assert (letter.exchange, letter.routing_key, letter.queue) == ("shop", "orders", "orders")
    assert "orders" in letter.last_attempt.message
    assert len(stage.intake) == 0


def test_one_of_the_default_exchange_goes_back_to_its_queue(stage: Any) -> None:
    stage.intake.take(dead())

    assert (LETTERS[0].exchange, LETTERS[0].routing_key, LETTERS[0].queue) == ("", "orders", "orders")


def test_what_has_expired_is_revoked_and_kept_unless_nobody_wants_that(stage: Any, settings: Any) -> None:
    stage.intake.take(dead("expired"))
    assert EVENTS == ["letter expired", "backend REVOKED", "ack"]

    settings.HARDENING = {**SINK, "INTAKE": {"KEEP_EXPIRED": False}}
    EVENTS.clear()
    stage.intake.take(dead("expired"))
    assert EVENTS == ["backend REVOKED", "ack"]


def test_one_without_a_word_of_its_death_is_kept_all_the_same(stage: Any) -> None:
    message = dead()
    del message.headers["x-death"]

    stage.intake.take(message)

    assert [letter.reason for letter in LETTERS] == ["broker_rejected"]
    assert message.answers == ["ack"]


def test_a_letter_that_no_store_takes_holds_its_message_back_and_is_not_tried_in_a_loop(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = refusing(monkeypatch)
    message = dead()
    stage.intake.take(message)
    for _ in range(600):
        stage.clock.now += 1
        stage.intake.turn()

    assert message.answers == []
    assert 600 / LONGEST_WAIT_SECONDS < len(refused) < 20

    refused.clear()
    stage.clock.now += LONGEST_WAIT_SECONDS
    stage.intake.turn()

    assert EVENTS == ["letter broker_rejected", "backend FAILURE", "ack"]
    assert len(stage.intake) == 0


def test_a_message_that_nobody_can_handle_is_held_and_others_are_served(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(app: Any, raw: Any, **more: Any) -> Any:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(dead_lettered, "raw_letter", broken)
        stage.intake.take(dead())
    stage.intake.take(dead(id="another"))

    assert [letter.task_id for letter in LETTERS] == ["another"]
    assert len(stage.intake) == 1


def test_what_has_succeeded_is_acknowledged_and_no_letter(stage: Any) -> None:
    stage.verdict = Verdict.DONE

    stage.intake.take(dead())

    assert EVENTS == ["ack"]


def test_what_runs_still_is_waited_for(stage: Any) -> None:
    stage.verdict = Verdict.HOLD
    stage.intake.take(dead("delivery_limit"))
    for _ in range(5):
        stage.clock.now += ASKED_EVERY_SECONDS
        stage.intake.turn()
    assert EVENTS == []

    stage.verdict = Verdict.DONE
    stage.clock.now += ASKED_EVERY_SECONDS
    stage.intake.turn()

    assert EVENTS == ["ack"]


def test_one_at_its_delivery_limit_waits_for_the_word_of_who_had_it_and_tells_of_its_deaths(
    stage: Any,
) -> None:
    stage.intake.take(dead("delivery_limit"))
    assert EVENTS == []

    stage.clock.now += GRACE_SECONDS
    stage.intake.turn()

    assert EVENTS == ["letter delivery_limit", "backend FAILURE", "ack"]


def test_a_task_that_rejected_its_message_has_its_letter(stage: Any) -> None:
    message = dead()
    note_kept(stage.app, message)

    stage.intake.take(message)

    assert EVENTS == ["ack"]
    assert not has_letter(stage.app, message), "a later death of the same has none"
    stage.intake.take(dead())
    assert len(LETTERS) == 1


def test_one_that_was_rejected_and_dies_otherwise_is_kept(stage: Any) -> None:
    message = dead("maxlen")
    note_kept(stage.app, message)

    stage.intake.take(message)

    assert [letter.reason for letter in LETTERS] == ["broker_dropped"]


@pytest.mark.parametrize("queue", ["celeryev.0815", "celeryev", "w1@host.celery.pidbox"])
def test_expired_events_and_remote_control_are_no_tasks(stage: Any, queue: str) -> None:
    stage.intake.take(dead("expired", queue=queue))

    assert EVENTS == ["ack"]


def test_a_queue_that_is_only_called_like_that_is_one_of_tasks(stage: Any) -> None:
    stage.intake.take(dead("expired", queue="celeryevents"))

    assert len(LETTERS) == 1
