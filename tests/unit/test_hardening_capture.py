"""A letter is complete, and kept: in the chosen store, else on the broker, else said not to be."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta

import pytest
from celery import chain, chord
from kombu import Exchange, Queue

from hardening.capture import (
    BrokerSink,
    Keeper,
    LetterNotKept,
    argument_names,
    chosen_sink,
    delivery_of,
    keeper_for,
)
from hardening.conf import load_settings
from hardening.core.loading import BackendError
from hardening.core.parking import DEAD_LETTER_QUEUE, drain_letters
from tests.helpers.dlq_letters import letter
from tests.helpers.hardened_apps import (
    LETTERS,
    SINK,
    RecordingSink,
    cut_off,
    fetch,
    hardened_app,
    request_of,
    run,
    send,
)

pytestmark = pytest.mark.usefixtures("isolated", "recording")


@pytest.fixture
def app():
    return hardened_app()


@pytest.fixture
def failing(app):
    @app.task(name="failing", shared=False)
    def failing(first=None, second=None, *rest, **more):
        raise ValueError("no")

    return failing


@pytest.fixture
def other(app):
    @app.task(name="other", shared=False)
    def other(*args, **kwargs): ...

    return other


def letter_of(task, *args, message=None, **options):
    run(request_of(task.app, message or send(task, *args, **options)))
    return LETTERS[-1]


def fail_message(app, message):
    run(request_of(app, message))
    return LETTERS[-1]


def test_a_letter_holds_the_message_as_it_was_delivered(failing, app) -> None:
    message = send(failing, 1, kwargs={"second": [2, {"ü": None}]}, task_id="id-1")
    body = message.body
    headers, properties = dict(message.headers), dict(message.properties)

    kept = letter_of(failing, message=message)

    assert kept.payload.body == (body.encode() if isinstance(body, str) else body)
    assert json.loads(kept.payload.body)[:2] == [[1], {"second": [2, {"ü": None}]}]
    assert kept.payload.content_type == "application/json"
    assert kept.payload.content_encoding == "utf-8"
    assert kept.payload.headers == headers
    assert kept.payload.properties == properties
    assert (kept.task_id, kept.delivery_key, kept.root_id) == ("id-1", "id-1", "id-1")
    assert kept.task_name == "failing"
    assert kept.argument_names == ("first", "second")
    assert kept.redelivered is False
    assert kept.attempts[-1].failed_at == kept.failed_at
    assert set(kept.versions) == {"python", "celery", "kombu", "django"}


def test_links_priority_and_custom_headers_are_in_the_letter(failing, other, app) -> None:
    kept = letter_of(
        failing,
        link=[other.s(), failing.s()],
        link_error=other.s(),
        priority=7,
        headers={"tenant": "t1"},
    )

    assert kept.canvas.callbacks == ("other", "failing")
    assert kept.canvas.errbacks == ("other",)
    assert kept.priority == 7
    assert kept.payload.headers["tenant"] == "t1"


def test_eta_and_expiry_are_in_the_letter(failing) -> None:
    eta = datetime.now(UTC) + timedelta(minutes=5)
    kept = letter_of(failing, eta=eta, expires=eta + timedelta(minutes=5))

    assert datetime.fromisoformat(str(kept.eta)) == eta
    assert datetime.fromisoformat(str(kept.expires)) == eta + timedelta(minutes=5)


def test_a_chord_member_names_its_group_and_the_body(failing, other, app) -> None:
    chord([failing.s(1), failing.s(2)], other.s()).apply_async()

    message = fetch(app)
    while message.headers["task"] != "failing":  # Celery's own task that watches the chord.
        message = fetch(app)
    kept = fail_message(app, message)

    assert kept.canvas.group
    assert kept.canvas.chord == "other"


def test_a_link_of_a_chain_names_what_would_have_come_after_it(failing, other, app) -> None:
    chain(failing.si(1), other.si(), failing.si(3)).apply_async()

    kept = fail_message(app, fetch(app))

    assert kept.canvas.chain == ("failing", "other")  # As Celery carries it: the next one last.


def test_a_child_names_its_parent_and_root(failing, app) -> None:
    kept = letter_of(failing, parent_id="p", root_id="r")

    assert (kept.parent_id, kept.root_id) == ("p", "r")


def test_the_queue_is_found_by_exchange_and_routing_key(failing, app) -> None:
    app.conf.task_queues = [
        Queue("payments", Exchange("shop", "topic"), routing_key="shop.payment"),
        Queue("parcels", Exchange("shop", "topic"), routing_key="shop.parcel"),
    ]
    app.amqp.__dict__.pop("queues", None)
    with app.connection_for_write() as connection:
        for queue in app.conf.task_queues:
            queue(connection.default_channel).declare()
    failing.apply_async(exchange="shop", routing_key="shop.parcel")

    kept = fail_message(app, fetch(app, "parcels"))

    assert (kept.exchange, kept.routing_key, kept.queue) == ("shop", "shop.parcel", "parcels")


def test_a_message_of_the_default_exchange_is_in_the_queue_of_its_routing_key(failing, app) -> None:
    kept = letter_of(failing)

    assert kept.queue == app.conf.task_default_queue


def test_a_redelivered_message_says_so(failing, app) -> None:
    message = send(failing)
    message.delivery_info["redelivered"] = True

    assert letter_of(failing, message=message).redelivered is True


def test_the_release_of_the_project_is_in_the_letter(settings) -> None:
    settings.HARDENING = {**SINK, "RELEASE": "2026.3"}
    app = hardened_app()

    @app.task(name="failing", shared=False)
    def failing():
        raise ValueError

    assert letter_of(failing).release == "2026.3"


def test_a_replayed_message_keeps_its_delivery_key(failing) -> None:
    kept = letter_of(failing, headers={"hardening_key": "k", "hardening_replay": 2, "hardening_letter": "l"})

    assert (kept.delivery_key, kept.replay_number, kept.replay_of) == ("k", 2, "l")
    assert kept.task_id != "k"


def test_names_of_arguments_are_those_of_the_body() -> None:
    app = hardened_app()

    @app.task(name="bound", bind=True, shared=False)
    def bound(self, a, b=1, /, c=2, *args, d, **kwargs): ...

    class Odd:
        run = "no function"

    assert argument_names(app.tasks["bound"]) == ("a", "b", "c")
    assert argument_names(Odd()) == ()
    assert argument_names(object()) == ()


def test_a_delivery_does_not_hold_itself(failing, app) -> None:
    message = send(failing)
    request_of(app, message)
    message.properties["hardening_delivery"] = "an earlier one"

    assert "hardening_delivery" not in delivery_of(message).properties


# Where letters go.


def test_the_settings_choose_the_sink_by_its_dotted_path(app) -> None:
    assert isinstance(chosen_sink(app, load_settings()[0]), RecordingSink)


def test_the_sink_of_an_installed_app_is_used_when_the_settings_name_none(app, settings, monkeypatch) -> None:
    settings.HARDENING = {}
    monkeypatch.setattr("hardening.core.sink._offered", ["tests.helpers.hardened_apps.RecordingSink"])

    assert isinstance(chosen_sink(app, load_settings()[0]), RecordingSink)


def test_without_any_store_letters_go_to_the_broker(settings, monkeypatch) -> None:
    settings.HARDENING = {}
    monkeypatch.setattr("hardening.core.sink._offered", [])

    assert isinstance(chosen_sink(hardened_app(), load_settings()[0]), BrokerSink)


def test_a_sink_that_cannot_be_loaded_raises_and_names_the_path(app, settings) -> None:
    settings.HARDENING = {"DEAD_LETTER_SINK": {"BACKEND": "no.such.Sink"}}

    with pytest.raises(BackendError, match=r"no\.such\.Sink"):
        chosen_sink(app, load_settings()[0])


def drained(app, queue):
    found: list[object] = []
    drain_letters(app, found.append, reject=lambda raw, exc: pytest.fail(str(exc)), limit=100, queue=queue)
    return found


@pytest.fixture
def queue(settings):
    from uuid import uuid4

    name = f"dead-{uuid4().hex[:8]}"
    settings.HARDENING = {**SINK, "DEAD_LETTER_QUEUE": name}
    return name


def test_the_store_is_tried_first_and_alone_when_it_takes_the_letter(queue, app) -> None:
    record = letter()

    Keeper(app).keep(record)

    assert [record] == LETTERS
    assert drained(app, queue) == []


def test_a_store_that_refuses_sends_the_letter_to_the_broker(queue, app, caplog) -> None:
    RecordingSink.down = True
    record = letter()

    with caplog.at_level(logging.WARNING, "hardening"):
        Keeper(app).keep(record)

    assert LETTERS == []
    assert drained(app, queue) == [record]
    assert "the broker is tried" in caplog.text


def test_a_store_that_cannot_even_be_loaded_sends_the_letter_to_the_broker(queue, app, settings) -> None:
    settings.HARDENING = {"DEAD_LETTER_SINK": {"BACKEND": "no.such.Sink"}, "DEAD_LETTER_QUEUE": queue}
    record = letter()

    Keeper(app).keep(record)

    assert drained(app, queue) == [record]


def test_when_nothing_takes_the_letter_the_error_carries_it(queue, app, caplog) -> None:
    RecordingSink.down = True
    cut_off(app)
    record = letter()

    with caplog.at_level(logging.WARNING, "hardening"), pytest.raises(LetterNotKept) as raised:
        Keeper(app).keep(record)

    assert raised.value.letter == record
    assert "no store took the dead letter" in caplog.text


def test_a_store_that_was_down_is_tried_again_for_the_next_letter(queue, app) -> None:
    keeper = Keeper(app)
    RecordingSink.down = True
    keeper.keep(letter())
    RecordingSink.down = False
    record = letter()

    keeper.keep(record)

    assert [record] == LETTERS


def test_the_parent_closes_what_its_sink_opened(app) -> None:
    closed: list[bool] = []
    keeper = Keeper(app)

    class Closing(RecordingSink):
        def close(self) -> None:
            closed.append(True)

    keeper._sink = Closing()
    keeper.keep_and_close(letter())
    RecordingSink.down = True
    cut_off(app)
    with pytest.raises(LetterNotKept):
        keeper.keep_and_close(letter())

    assert closed == [True, True]


def test_an_app_has_one_keeper_in_a_process(app) -> None:
    assert keeper_for(app) is keeper_for(app)
    assert keeper_for(app) is not keeper_for(hardened_app("other"))


def test_the_default_queue_of_letters_has_its_documented_name(settings) -> None:
    settings.HARDENING = {}

    assert load_settings()[0].dead_letter_queue == DEAD_LETTER_QUEUE == "celery_hardening.dead_letters"
