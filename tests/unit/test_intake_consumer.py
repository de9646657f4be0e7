"""What is no task: the letter first, then the result, then the acknowledgement, then Celery's signal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery import signals
from celery.worker.consumer.consumer import Consumer
from celery.worker.state import revoked as revoked_tasks
from kombu import Queue
from kombu.message import Message

from hardening.core.identity import OFFERS_HEADER
from hardening.delayed.entry import Fate
from hardening.delayed.stores.memory import MemoryDelayedStore
from hardening.holding import FIRST_WAIT_SECONDS, holding_for
from hardening.intake.consumer import IntakeConsumer, _look, times_of
from hardening.intake.rules import IntakeRules
from hardening.intake.shape import MOST_DEPTH, flaw_of_properties
from hardening.intake.unregistered import offers_of
from hardening.store import StoreUnavailable
from tests.helpers.hardened_apps import (
    EVENTS,
    LETTERS,
    SINK,
    RecordingSink,
    cut_off,
    hardened_app,
    request_of,
    run,
    send,
)

pytestmark = pytest.mark.usefixtures("isolated", "recording")

HEADERS = {"task": "nobody.knows", "id": "task-1", "lang": "py"}
BODY: Any = [[1], {}, {"chord": None}]


class Channel:
    """Notes what it is told."""

    no_ack_consumers = None

    def basic_ack(self, tag: Any, multiple: bool = False) -> None:
        EVENTS.append(f"ack {tag}")

    def basic_reject(self, tag: Any, requeue: bool = False) -> None:
        EVENTS.append(f"reject {tag}")


class PlainConsumer:
    """As much of Celery's as the handler needs: its own code, without a connection."""

    create_task_handler = Consumer.create_task_handler
    on_invalid_task = Consumer.on_invalid_task

    def __init__(self, app: Any) -> None:
        self.app = app
        self.hostname = "w1@host"
        self.strategies: dict[str, Any] = {}
        self.on_task_message: set[Any] = set()
        self.connection_errors = (OSError,)
        self.event_dispatcher = None
        self._maximum_prefetch_restored = True
        self.task_consumer = SimpleNamespace(
            queues=[Queue("celery")], channel=SimpleNamespace(), _active_tags={"celery": "t1"}
        )

    def call_soon_ack(self, call: Any, *args: Any) -> None:
        call(*args)

    call_soon = call_soon_ack  # Celery 5.6

    def _restore_prefetch_count_after_connection_restart(self, *args: Any) -> None: ...


class OurConsumer(IntakeConsumer, PlainConsumer):
    pass


@pytest.fixture
def app() -> Any:
    return hardened_app()


def message(headers: Any = None, body: Any = BODY, **more: Any) -> Any:
    content: Any = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    return Message(
        body=content,
        delivery_tag="7",
        content_type=more.pop("content_type", "application/json"),
        content_encoding="utf-8",
        headers=dict(HEADERS if headers is None else headers),
        delivery_info={"exchange": "", "routing_key": "celery", "consumer_tag": "t1"},
        channel=Channel(),
        accept={"application/json"},
        **more,
    )


@contextmanager
def heard(signal: Any) -> Iterator[list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []

    def receive(**facts: Any) -> None:
        EVENTS.append("signal")
        found.append(facts)

    signal.connect(receive, weak=False)
    try:
        yield found
    finally:
        signal.disconnect(receive)


def test_an_unknown_task_is_kept_then_failed_then_acknowledged_then_told(app) -> None:
    handle = OurConsumer(app).create_task_handler()

    with heard(signals.task_unknown) as told:
        handle(message())

    assert EVENTS == ["letter unregistered", "backend FAILURE", "ack 7", "signal"]
    assert (told[0]["name"], told[0]["id"]) == ("nobody.knows", "task-1")
    assert app.AsyncResult("task-1").state == "FAILURE"
    assert type(app.AsyncResult("task-1").result).__name__ == "NotRegistered"


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (message(body=b"{"), "undecodable"),
        (message(content_type="application/xml"), "content_refused"),
        (message(body=[[1]]), "malformed"),
        (message({}, body={"hello": 1}), "not_a_task"),
    ],
)
def test_what_celery_rejects_is_kept_and_still_told_as_rejected(app, made, reason) -> None:
    handle = OurConsumer(app).create_task_handler()

    with heard(signals.task_rejected) as told:
        handle(made)

    assert [event for event in EVENTS if not event.startswith("backend")] == [
        f"letter {reason}",
        "ack 7",
        "signal",
    ]
    assert told[0]["message"] is made
    assert (told[0]["exc"] is None) == (reason == "not_a_task")


def test_a_good_message_is_celerys_and_its_body_is_decoded_once(app) -> None:
    consumer = OurConsumer(app)
    got: list[Any] = []
    consumer.strategies["nobody.knows"] = lambda made, *_: got.append(made)
    made = message()

    consumer.create_task_handler()(made)

    assert got == [made]
    assert made._decoded_cache == BODY
    assert EVENTS == []


@pytest.mark.parametrize("name", ["odd", "delivery_info", "reply_to"])
def test_properties_that_no_child_could_be_sent_end_as_a_letter(app, name) -> None:
    deep: Any = "the end"
    for _ in range(5_000):
        deep = {"a": [deep]}
    app.task(name="nobody.knows", shared=False)(lambda: None)
    handle = OurConsumer(app).create_task_handler()

    handle(message(properties={name: deep}))

    assert [letter.reason for letter in LETTERS] == ["malformed"]
    assert EVENTS[0] == "letter malformed"
    assert "ack 7" in EVENTS


@pytest.mark.parametrize("part", ["arguments", "keywords", "embedded"])
def test_a_body_that_is_too_deep_to_be_sent_to_a_child_is_no_task(app, part) -> None:
    def body(depth: int) -> bytes:
        deep = "[" * depth + "]" * depth
        parts = {"arguments": "[]", "keywords": "{}", "embedded": "{}"}
        parts[part] = f"[{deep}]" if part == "arguments" else f'{{"a": {deep}}}'
        return f"[{', '.join(parts.values())}]".encode()

    def ends(depth: int) -> bool:
        return _look(message(body=body(depth)), times_of(app), IntakeRules()) is not None

    assert [ends(depth) for depth in (100, 190, 210, 460, 800)] == [False, False, True, True, True]


def test_a_wide_body_is_not_deep(app) -> None:
    made = message(body=[[[]] * 1_000, {"a": [{}] * 1_000}, {}])

    assert _look(made, times_of(app), IntakeRules()) is None


def test_headers_among_the_properties_are_no_deeper_there(app) -> None:
    deep: Any = "the end"
    for _ in range(MOST_DEPTH):
        deep = [deep]

    assert flaw_of_properties({"application_headers": {"x": deep}}) is None
    assert flaw_of_properties({"x": deep}) is None
    assert flaw_of_properties({"x": [[deep]]}) is not None


def test_an_error_of_the_connection_gets_through(app) -> None:
    consumer = OurConsumer(app)

    def strategy(*_: Any) -> None:
        raise ConnectionResetError

    consumer.strategies["nobody.knows"] = strategy

    with pytest.raises(ConnectionResetError):
        consumer.create_task_handler()(message())
    assert EVENTS == []


def test_a_message_whose_letter_is_kept_nowhere_is_held_and_settled_later(app, monkeypatch) -> None:
    RecordingSink.down = True
    cut_off(app)
    made = message()

    OurConsumer(app).create_task_handler()(made)

    assert EVENTS == []
    assert len(holding_for(app)) == 1
    RecordingSink.down = False
    monkeypatch.setattr(holding_for(app), "_clock", lambda: time.monotonic() + FIRST_WAIT_SECONDS + 1)
    holding_for(app).retry_due()
    assert EVENTS == ["letter unregistered", "backend FAILURE", "ack 7"]
    assert len(holding_for(app)) == 0


def test_a_dead_result_backend_does_not_keep_the_message(app) -> None:
    app.backend.down = True

    OurConsumer(app).create_task_handler()(message())

    assert EVENTS == ["letter unregistered", "ack 7"]


def test_a_body_that_is_too_large_is_not_decoded(app, settings) -> None:
    settings.HARDENING = {**SINK, "INTAKE": {"MOST_BYTES": 10}}
    made = message()

    OurConsumer(app).create_task_handler()(made)

    assert made._decoded_cache is None
    assert [letter.reason for letter in LETTERS] == ["oversized"]


# Offers


class Offered:
    def __init__(self, app: Any, monkeypatch: Any, settings: Any, store: Any = None, **rules: Any) -> None:
        settings.HARDENING = {**SINK, "INTAKE": {"OFFERS": 2, "OFFER_AFTER": 5, **rules}}
        app.conf.broker_url = "amqp://"
        self.store = store or MemoryDelayedStore(clock=time.time)
        monkeypatch.setattr("hardening.intake.unregistered.chosen_delayed_store", lambda *_: self.store)
        self.handle = OurConsumer(app).create_task_handler()


@pytest.fixture
def offered(app, monkeypatch, settings) -> Offered:
    return Offered(app, monkeypatch, settings)


def test_an_unknown_task_is_parked_and_then_acknowledged(offered) -> None:
    made = message()

    offered.handle(made)

    assert EVENTS == ["ack 7"]
    [entry] = offered.store.page(limit=10, offset=0)
    assert (entry.task, entry.task_id) == ("nobody.knows", "task-1")
    assert OFFERS_HEADER not in made.headers, "only what comes back was offered"


def test_after_the_last_offer_it_is_kept(offered) -> None:
    offered.handle(message({**HEADERS, OFFERS_HEADER: "1 task-1"}))
    assert EVENTS == ["ack 7"]
    EVENTS.clear()

    offered.handle(message({**HEADERS, OFFERS_HEADER: "2 task-1"}))

    assert EVENTS[0] == "letter unregistered"


def test_a_copy_of_what_was_offered_is_acknowledged_and_not_offered_twice(offered) -> None:
    offered.handle(message())
    offered.handle(message())

    assert EVENTS == ["ack 7", "ack 7"]
    assert not LETTERS


class Down(MemoryDelayedStore):
    def park(self, entry: Any) -> Fate:
        raise StoreUnavailable("no store")


def test_without_a_store_to_park_it_the_letter_is_kept_at_once(app, monkeypatch, settings) -> None:
    offered = Offered(app, monkeypatch, settings, Down(clock=time.time))

    offered.handle(message())

    assert EVENTS[0] == "letter unregistered"
    assert OFFERS_HEADER not in LETTERS[0].payload.headers


def test_no_offers_unless_they_are_asked_for(app, monkeypatch, settings) -> None:
    offered = Offered(app, monkeypatch, settings, OFFERS=0)

    offered.handle(message())

    assert EVENTS[0] == "letter unregistered"


@pytest.mark.parametrize("header", [None, 5, "", "x", "2", "2 other", "\u0662 task-1", "-1 task-1", ["2"]])
def test_an_inherited_or_odd_count_of_offers_is_none(header) -> None:
    assert offers_of({"id": "task-1", OFFERS_HEADER: header}) == 0


# Expired


@pytest.fixture
def late(app) -> Any:
    @app.task(name="late", shared=False)  # type: ignore[untyped-decorator]
    def late(*args: Any) -> None:
        EVENTS.append("ran")

    return late


def expired(task: Any) -> Any:
    made = send(task)
    made.headers["expires"] = (datetime.now(UTC) - timedelta(seconds=5)).isoformat()
    return request_of(task.app, made)


def test_a_task_that_is_too_late_is_kept_then_revoked_then_acknowledged(app, late) -> None:
    request = expired(late)

    with heard(signals.task_revoked) as told:
        assert request.revoked()

    assert EVENTS == ["letter expired", "backend REVOKED", "signal"]
    assert request.answers.given == ["ack"]
    assert told[0]["expired"] is True
    assert request.id not in revoked_tasks


def test_it_is_settled_once_however_often_it_is_asked(app, late) -> None:
    request = expired(late)

    assert request.revoked()
    assert request.revoked()

    assert request.answers.given == ["ack"]
    assert len(LETTERS) == 1


def test_one_that_was_revoked_is_cancelled_and_leaves_no_letter(app, late) -> None:
    request = expired(late)
    revoked_tasks.add(request.id)
    try:
        assert request.revoked()
    finally:
        revoked_tasks.discard(request.id)

    assert not LETTERS


def test_a_project_may_do_without_letters_of_what_is_too_late(app, late, settings) -> None:
    settings.HARDENING = {**SINK, "INTAKE": {"KEEP_EXPIRED": False}}
    request = expired(late)

    assert request.revoked()

    assert EVENTS == ["backend REVOKED"]
    assert request.answers.given == ["ack"]


def test_a_late_task_whose_letter_is_kept_nowhere_is_held(app, late, monkeypatch) -> None:
    request = expired(late)
    RecordingSink.down = True
    cut_off(app)

    assert request.revoked()

    assert (EVENTS, request.answers.given, len(holding_for(app))) == ([], [], 1)
    RecordingSink.down = False
    monkeypatch.setattr(holding_for(app), "_clock", lambda: time.monotonic() + FIRST_WAIT_SECONDS + 1)
    holding_for(app).retry_due()
    assert EVENTS == ["letter expired", "backend REVOKED"]
    assert request.answers.given == ["ack"]


def test_the_tail_of_a_chain_and_errbacks_of_a_late_task_are_told(app, late) -> None:
    @app.task(name="errback", shared=False)  # type: ignore[untyped-decorator]
    def errback(request: Any, exc: Any, traceback: Any) -> None:
        EVENTS.append("errback")

    tail = late.si()
    tail.freeze()
    made = send(late, chain=[tail], link_error=errback.s())
    made.headers["expires"] = (datetime.now(UTC) - timedelta(seconds=5)).isoformat()
    request = request_of(app, made)

    assert request.revoked()

    assert app.AsyncResult(tail.id).state == "REVOKED"
    assert "errback" in EVENTS
    assert EVENTS.index("letter expired") == 0


def test_a_task_in_time_runs(app, late) -> None:
    made = send(late, expires=60)

    assert run(request_of(app, made)) == ["ack"]
    assert "ran" in EVENTS
