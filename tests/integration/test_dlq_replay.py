"""A replay on real brokers: the same body, a new identity, once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from celery import Celery
from django.utils import timezone
from kombu import Exchange, Queue

from dlq.discard import discard
from dlq.errors import UnknownQueue
from dlq.models import DeadLetter, Operation, OperationItem
from dlq.operations import publishing
from dlq.operations.publishing import Publisher
from dlq.operations.runner import run_operation
from dlq.replay import ReplayOutcome, replay
from dlq.sink import DatabaseSink
from hardening.core.broker import batching_connection
from hardening.core.identity import (
    ATTEMPTS_HEADER,
    DEPENDENCY_HEADER,
    FIRST_HEADER,
    KEY_HEADER,
    LETTER_HEADER,
    PARKED_HEADER,
    REPLAY_HEADER,
    identity_of,
    replay_task_id,
)
from hardening.core.letter import DeadLetter as LetterRecord
from hardening.core.letter import Payload
from tests.helpers.dlq_databases import letters_in
from tests.helpers.dlq_letters import body_of, letter, with_payload


@pytest.fixture(params=["redis", "rabbitmq"])
def broker_url(request) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def app(broker_url) -> Iterator[Celery]:
    # A result backend that is down: replays must not need it.
    with Celery("replays", broker=broker_url, backend="redis://127.0.0.1:1/0", set_as_current=False) as app:
        app.conf.task_queues = [
            Queue("payments", Exchange("payments", type="direct"), routing_key="payments"),
            Queue("slow", Exchange("jobs", type="topic"), routing_key="jobs.slow.#"),
            Queue("news.a", Exchange("news", type="fanout")),
            Queue("news.b", Exchange("news", type="fanout")),
        ]
        with app.connection() as connection:
            for queue in app.conf.task_queues:
                queue(connection.default_channel).declare()
        yield app


@pytest.fixture(autouse=True)
def alias(request, tmp_path, settings, django_db_blocker) -> Iterator[str]:
    with django_db_blocker.unblock(), letters_in("sqlite", request, tmp_path) as name:
        settings.DLQ = {"DATABASE": name}
        yield name


@pytest.fixture
def messages(app) -> Callable[[str], list]:
    def take(queue: str) -> list:
        found = []
        with app.connection() as connection:
            bound = Queue(queue)(connection.default_channel)
            while message := bound.get(no_ack=True):
                found.append(message)
        return found

    return take


def kept(record: LetterRecord | None = None) -> DeadLetter:
    DatabaseSink().keep(record or letter())
    row: DeadLetter = DeadLetter.objects.order_by("-stored_at")[0]
    return row


@pytest.mark.parametrize(
    ("body", "content_type", "content_encoding"),
    [
        (b'[[1, "\xc3\xa9"],  {"b":2,"a":1}, {"chord": null}]', "application/json", "utf-8"),
        (bytes(range(256)), "application/x-python-serialize", "binary"),
    ],
)
def test_the_body_is_the_same_byte_for_byte(app, messages, body, content_type, content_encoding) -> None:
    row = kept(
        with_payload(letter(), body=body, content_type=content_type, content_encoding=content_encoding)
    )

    outcome = replay([row.pk], by="ops", app=app)

    assert outcome.sent == (row.pk,)
    (message,) = messages("payments")
    raw = message.body if isinstance(message.body, bytes) else message.body.encode()
    assert raw == body
    assert (message.content_type, message.content_encoding) == (content_type, content_encoding)


def test_headers_are_as_they_were_except_for_the_new_identity(app, messages) -> None:
    stay = {"parent_id": "parent", "tenant": "acme", "timelimit": [30, None]}
    go = {
        "compression": "application/x-gzip",
        "x-death": [{"queue": "payments"}],
        "x-first-death-queue": "payments",
        "x-last-death-reason": "rejected",
        "x-delivery-count": 7,
        ATTEMPTS_HEADER: "[]",
        FIRST_HEADER: 1_767_225_600.5,
        DEPENDENCY_HEADER: "stripe",
        PARKED_HEADER: 7,
        "redelivered": True,
    }
    reset = {"retries": 3, "eta": "2026-03-01T10:00:00", "expires": "2026-03-01T10:00:00"}
    record = letter(headers=stay | go | reset)
    row = kept(record)

    replay([row.pk], by="ops", app=app)

    (message,) = messages("payments")
    assert message.headers == {
        **letter(task_id=record.task_id).payload.headers,
        **stay,
        "id": replay_task_id(record.delivery_key, 1, row.body_digest),
        "root_id": record.task_id,
        "retries": 0,
        "eta": None,
        "expires": None,
        KEY_HEADER: record.delivery_key,
        REPLAY_HEADER: 1,
        LETTER_HEADER: str(row.pk),
    }


def test_the_identity_of_a_replay_names_the_delivery_its_number_and_its_letter(app, messages) -> None:
    row = kept(letter(task_id="third-life", delivery_key="work", replay_number=2))

    replay([row.pk], by="ops", app=app)

    (message,) = messages("payments")
    identity = identity_of(message.headers, message.headers["id"])
    assert (identity.delivery_key, identity.replay_number, identity.replay_of) == ("work", 3, str(row.pk))
    assert message.headers["id"] == row.replay_task_id == replay_task_id("work", 3, row.body_digest)
    assert message.headers["root_id"] == "third-life"


def test_properties_follow_the_new_id_and_never_expire(app, messages) -> None:
    row = kept(
        with_payload(letter(), properties={"reply_to": "r", "correlation_id": "old", "expiration": "1000"})
    )

    replay([row.pk], by="ops", app=app)

    (message,) = messages("payments")
    assert message.properties["correlation_id"] == row.replay_task_id
    assert message.properties["reply_to"] == "r"
    assert message.properties["priority"] == 3
    assert message.properties.get("delivery_mode") == 2
    assert not message.properties.get("expiration")


def test_a_message_of_protocol_1_is_not_turned_into_another_protocol(app, messages) -> None:
    body = json.dumps({"id": "old", "task": "shop.tasks.charge", "args": [1], "kwargs": {}}).encode()
    record = letter(
        task_id="old", payload=Payload(body=body, content_type="application/json", content_encoding="utf-8")
    )
    row = kept(record)

    replay([row.pk], by="ops", app=app)

    (message,) = messages("payments")
    assert "id" not in message.headers
    assert row.replay_task_id == "old"
    assert message.headers[KEY_HEADER] == "old"


def test_a_letter_goes_back_through_its_exchange(app, messages) -> None:
    row = kept(letter(exchange="jobs", routing_key="jobs.slow.eu", queue="slow"))

    assert replay([row.pk], by="ops", app=app).failed == {}

    assert len(messages("slow")) == 1


def test_a_letter_of_a_fan_out_exchange_goes_back_to_its_own_queue_only(app, messages) -> None:
    row = kept(letter(exchange="news", routing_key="", queue="news.a"))

    replay([row.pk], by="ops", app=app)

    assert (len(messages("news.a")), len(messages("news.b"))) == (1, 0)


def test_another_queue_can_be_named(app, messages) -> None:
    row = kept(letter(exchange="jobs", routing_key="jobs.slow.eu", queue="slow"))

    replay([row.pk], by="ops", queue="payments", app=app)

    assert (len(messages("payments")), len(messages("slow"))) == (1, 0)


def test_a_known_queue_that_does_not_exist_yet_is_declared(app, messages) -> None:
    app.conf.task_queues.append(Queue("later", Exchange("later"), routing_key="later"))
    app.amqp.__dict__.pop("queues", None)
    row = kept(letter(routing_key="later", queue="later"))

    assert replay([row.pk], by="ops", app=app).failed == {}

    assert len(messages("later")) == 1


@pytest.mark.parametrize("broker_url", ["rabbitmq"], indirect=True)  # On Redis every name is a queue.
def test_a_queue_that_nobody_knows_fails_on_rabbitmq_and_the_letter_stays_open(app, broker_url) -> None:
    row = kept(letter(routing_key="no-such-queue", queue="no-such-queue"))

    outcome = replay([row.pk], by="ops", app=app)

    row.refresh_from_db()
    assert row.state == "open"
    assert "NO_ROUTE" in outcome.failed[row.pk]
    assert row.replay_error == outcome.failed[row.pk]


def test_one_letter_that_cannot_be_sent_does_not_stop_the_others(app, messages) -> None:
    lost = kept(
        letter(routing_key="", queue="", payload=Payload(body=b"x", content_type=None, content_encoding=None))
    )
    good = kept()

    outcome = replay([lost.pk, good.pk], by="ops", app=app)

    assert outcome.sent == (good.pk,)
    assert "name a queue" in outcome.failed[lost.pk]
    assert len(messages("payments")) == 1


def test_letters_in_another_state_are_skipped_and_counted(app, messages) -> None:
    rows = [kept() for _ in range(3)]
    discard([rows[0].pk], by="ops", reason="known")
    replay([rows[1].pk], by="ops", app=app)
    messages("payments")

    outcome = replay([*(row.pk for row in rows), uuid4()], by="ops", app=app)

    assert outcome.sent == (rows[2].pk,)
    assert outcome.skipped == {"discarded": 1, "replayed": 1, "missing": 1}
    assert len(messages("payments")) == 1


def test_a_dry_run_changes_and_sends_nothing(app, messages) -> None:
    row = kept()

    outcome = replay([row.pk], by="ops", dry_run=True, app=app)

    row.refresh_from_db()
    assert (outcome.sent, outcome.dry_run, row.state) == ((row.pk,), True, "open")
    assert messages("payments") == []


def test_who_and_when_are_recorded(app) -> None:
    row = kept()

    replay([row.pk], by="alice", app=app)

    row.refresh_from_db()
    assert (row.state, row.claimed_by, row.closed_by) == ("replayed", "alice", "alice")
    assert row.replayed_at == row.closed_at is not None


def test_of_two_replays_at_once_one_sends_each_letter(app, messages) -> None:
    ids = [kept().pk for _ in range(20)]
    start = threading.Barrier(2)
    outcomes: list[ReplayOutcome] = []

    def run() -> None:
        start.wait()
        outcomes.extend(replay([pk], by="ops", app=app) for pk in ids)
        DatabaseSink().close()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    sent = [pk for outcome in outcomes for pk in outcome.sent]
    assert sorted(sent) == sorted(ids)
    assert len(messages("payments")) == 20


def test_a_broker_that_is_down_puts_every_letter_back_and_is_asked_once(monkeypatch) -> None:
    rows = [kept() for _ in range(60)]
    down = Celery("down", broker="redis://:hunter22@127.0.0.1:1/0", set_as_current=False)
    asked: list[Celery] = []

    def counting(app: Celery, seconds: float):
        asked.append(app)
        return batching_connection(app, seconds)

    monkeypatch.setattr(publishing, "batching_connection", counting)

    outcome = replay([row.pk for row in rows], by="ops", app=down)

    assert DeadLetter.objects.open().count() == 60
    assert len(outcome.failed) == 60
    assert len(asked) == 1
    assert "hunter22" not in str(outcome.failed)


def test_a_replay_that_died_after_its_claim_is_resumed_with_the_same_task_id(app, messages) -> None:
    row = kept()
    long_ago = timezone.now() - timedelta(seconds=61)
    DeadLetter.objects.filter(pk=row.pk).claim(by="dead", token=uuid4(), now=long_ago, stale_before=long_ago)

    outcome = replay([row.pk], by="ops", app=app)

    assert outcome.sent == (row.pk,)
    (message,) = messages("payments")
    assert message.headers["id"] == row.replay_task_id


def test_a_claim_that_is_not_stale_is_left_to_its_holder(app, messages) -> None:
    row = kept()
    now = timezone.now()
    DeadLetter.objects.filter(pk=row.pk).claim(by="busy", token=uuid4(), now=now, stale_before=now)

    outcome = replay([row.pk], by="ops", app=app)

    assert (outcome.sent, outcome.skipped) == ((), {"replaying": 1})
    assert messages("payments") == []


def test_a_replay_interrupted_between_letters_is_gone_on_with_and_sends_none_as_another_task(
    app, messages, monkeypatch
) -> None:
    rows = [kept() for _ in range(3)]
    calls: list[int] = []
    publish = Publisher.publish

    def interrupted(self, message):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(1)
        publish(self, message)

    monkeypatch.setattr(Publisher, "publish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replay([row.pk for row in rows], by="ops", app=app)
    monkeypatch.undo()
    # The broker's confirm of one may have been read while the next was published: that one is marked.
    assert not DeadLetter.objects.open().exists()
    assert DeadLetter.objects.replaying().exists()

    run_operation(Operation.objects.get().pk, app=app)

    assert DeadLetter.objects.replayed().count() == 3
    assert {message.headers["id"] for message in messages("payments")} == {r.replay_task_id for r in rows}


def test_a_replay_that_nobody_took_up_is_taken_over_by_the_next_one_once_its_claim_is_stale(
    app, messages, monkeypatch
) -> None:
    row = kept()
    monkeypatch.setattr(Publisher, "publish", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        replay([row.pk], by="first", app=app)
    monkeypatch.undo()
    assert replay([row.pk], by="early", app=app).skipped == {"replaying": 1}
    DeadLetter.objects.filter(pk=row.pk).update(claimed_at=timezone.now() - timedelta(seconds=61))

    assert replay([row.pk], by="second", app=app).sent == (row.pk,)
    run_operation(Operation.objects.get(created_by="first").pk, app=app)

    assert [message.headers["id"] for message in messages("payments")] == [row.replay_task_id]
    item = OperationItem.objects.get(operation__created_by="first")
    assert (item.state, item.verdict) == ("not_sent", "claimed")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_replay_that_fails_again_is_a_new_open_letter_linked_both_ways(app, messages) -> None:
    row = kept()
    replay([row.pk], by="ops", app=app)
    (message,) = messages("payments")
    identity = identity_of(message.headers, message.headers["id"])

    again = kept(
        letter(
            task_id=message.headers["id"],
            delivery_key=identity.delivery_key,
            replay_number=identity.replay_number,
            replay_of=identity.replay_of,
        )
    )

    assert (again.state, again.replay_of_id, list(row.replays.all())) == ("open", row.pk, [again])
    assert messages("payments") == []


def test_two_works_published_under_one_task_id_are_replayed_as_two_tasks(app, messages) -> None:
    rows = [kept(letter(task_id="same", body=body_of(n))) for n in (1, 2)]

    replay([row.pk for row in rows], by="ops", app=app)

    sent = {message.headers["id"]: message for message in messages("payments")}
    assert set(sent) == {row.replay_task_id for row in rows}
    assert len(sent) == 2
    for row in rows:
        message = sent[row.replay_task_id]
        identity = identity_of(message.headers, message.headers["id"])
        body = message.body if isinstance(message.body, bytes) else message.body.encode()
        again = kept(
            letter(
                task_id=message.headers["id"],
                delivery_key=identity.delivery_key,
                replay_number=identity.replay_number,
                replay_of=identity.replay_of,
                body=body,
            )
        )
        assert again.replay_of_id == row.pk
        assert again.captures == 1
        assert again.replay_task_id not in sent
    assert len(set(DeadLetter.objects.values_list("replay_task_id", flat=True))) == 4


def test_the_task_id_of_a_replay_is_the_same_each_time_it_is_derived(app) -> None:
    row = kept(letter(task_id="same", body=body_of(1)))
    discard([row.pk], by="ops", reason="known")

    assert kept(letter(task_id="same", body=body_of(1))).replay_task_id == row.replay_task_id


def test_a_queue_that_the_app_does_not_know_is_refused_and_nothing_changes(app, messages) -> None:
    row = kept()

    for dry_run in (False, True):
        with pytest.raises(UnknownQueue, match=r"no queue 'paymnets'.*payments, slow"):
            replay([row.pk], by="ops", queue="paymnets", dry_run=dry_run, app=app)

    row.refresh_from_db()
    assert (row.state, row.replay_error, messages("payments")) == ("open", "", [])


@pytest.mark.parametrize("broker_url", ["redis"], indirect=True)  # On RabbitMQ no such queue exists.
def test_a_queue_that_the_app_does_not_know_can_be_forced(app, messages) -> None:
    row = kept()

    assert replay([row.pk], by="ops", queue="elsewhere", force_queue=True, app=app).sent == (row.pk,)
    assert len(messages("elsewhere")) == 1


@pytest.mark.parametrize(("priority", "sent"), [("high", None), (10**9, None), ("7", 7), (-1, None)])
def test_a_priority_that_no_broker_takes_does_not_keep_a_letter_from_its_replay(
    app, messages, priority, sent
) -> None:
    row = kept(letter(priority=priority))

    assert replay([row.pk], by="ops", app=app).failed == {}

    (message,) = messages("payments")
    assert (message.properties.get("priority") or None) == sent
