"""Which messages are parked, and which are left to Celery."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from celery.utils.time import maybe_iso8601, maybe_make_aware
from kombu import Queue

from hardening.core.identity import DELAYED_HEADER, DUE_HEADER, FIRST_HEADER
from hardening.delayed.due import due_of
from hardening.delayed.entry import Delayed, Fate, is_due, load_message, mark_due
from hardening.delayed.rules import DelayedRules
from hardening.delayed.step import Parking, prepare
from hardening.delayed.stores.memory import MemoryDelayedStore
from hardening.reception import STEPS, Arrival
from hardening.store import StoreUnavailable
from tests.helpers.hardened_apps import hardened_app, request_of, send

NOW = 1_800_000_000.0


class Channel:
    """As much of a Redis channel as is asked."""

    sep = "\x06\x16"
    bindings: dict[tuple[str, str], list[str]] = {}
    _fanout_queues: dict[str, Any] = {}

    def _lookup(self, exchange: str, routing_key: str) -> list[str]:
        return self.bindings.get((exchange, routing_key), [routing_key])

    def _get_message_priority(self, raw: Any) -> int:
        return int(raw["properties"].get("priority", 0))

    def _q_for_pri(self, queue: str, priority: int) -> str:
        return f"{queue}{self.sep}{priority}" if priority else queue


class Scene:
    """A worker with the queues "shop" and "post", a store, and messages that come."""

    def __init__(self, *, horizon: float = 12.0, store: Any = None) -> None:
        self.now = NOW
        self.store = store or MemoryDelayedStore(clock=lambda: self.now)
        queues = [
            Queue("shop"),
            Queue("post"),
            Queue("passing", auto_delete=True),
            Queue("own", exclusive=True),
        ]
        tags = {"shop": "t1", "post": "t2"}
        self.revoked: set[str] = set()
        self.consumer = SimpleNamespace(
            app=hardened_app("delayed"),
            task_consumer=SimpleNamespace(queues=queues, _active_tags=tags),
            controller=SimpleNamespace(state=SimpleNamespace(revoked=self.revoked)),
        )
        self.parking = Parking(
            self.consumer, self.store, DelayedRules(horizon=horizon), clock=lambda: self.now
        )
        self.acknowledged = 0

    def arrives(self, message: Any) -> bool:
        arrival = Arrival(
            SimpleNamespace(name="shop.charge"), message, self.consumer, self._ack, lambda: None
        )
        return self.parking.concerns(message) and self.parking.take(arrival)

    def _ack(self) -> None:
        self.acknowledged += 1

    def entries(self) -> list[Delayed]:
        store: Any = self.store
        return [row.entry for row in store._ordered()]


def in_seconds(seconds: float) -> str:
    return datetime.fromtimestamp(NOW + seconds, UTC).isoformat()


def headers_of(eta: Any = None, **more: Any) -> dict[str, Any]:
    return {"id": "task-1", "task": "shop.charge", "eta": eta, "retries": 0, "expires": None, **more}


def amqp(eta: Any = None, *, body: Any = b"[[], {}, {}]", tag: Any = "t1", redelivered=False, **headers: Any):
    return SimpleNamespace(
        headers=headers_of(eta, **headers),
        body=body,
        errors=[],
        content_type="application/json",
        content_encoding="utf-8",
        properties={
            "priority": 5,
            "correlation_id": "task-1",
            "reply_to": "r",
            "expiration": "1000",
            "user_id": "guest",
        },
        delivery_info={
            "exchange": "orders",
            "routing_key": "a.b",
            "consumer_tag": tag,
            "redelivered": redelivered,
        },
    )


def on_redis(eta: Any = None, *, routing_key="shop", exchange="", priority=0, info=None, **headers: Any):
    raw = {
        "body": "W10=",
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": headers_of(eta, **headers),
        "properties": {
            "priority": priority,
            "delivery_tag": "d",
            "body_encoding": "base64",
            "delivery_info": {"exchange": exchange, "routing_key": routing_key, **(info or {})},
        },
    }
    properties: Any = raw["properties"]
    return SimpleNamespace(
        _raw=raw,
        headers=raw["headers"],
        body=b"[]",
        errors=[],
        properties=properties,
        delivery_info=properties["delivery_info"],
        channel=Channel(),
    )


KINDS = pytest.mark.parametrize("message", [amqp, on_redis])


@KINDS
def test_what_is_due_beyond_the_horizon_is_parked_and_then_acknowledged(message: Callable[..., Any]) -> None:
    scene = Scene()

    assert scene.arrives(message(in_seconds(13), retries=2))

    assert scene.acknowledged == 1
    [entry] = scene.entries()
    assert (entry.task_id, entry.task, entry.queue, entry.attempt) == ("task-1", "shop.charge", "shop", 3)
    assert entry.due == pytest.approx(NOW + 13)


@KINDS
@pytest.mark.parametrize("seconds", [-5, 0, 11.9])
def test_what_is_due_within_the_horizon_stays_in_the_worker(message, seconds: float) -> None:
    scene = Scene()

    assert not scene.arrives(message(in_seconds(seconds)))

    assert scene.entries() == []


@KINDS
@pytest.mark.parametrize("eta", [None, "", "tomorrow", "2026-13-40", 5, [], {}, "9999-12-31T23:59:59.999999"])
def test_without_a_usable_time_it_is_celerys(message, eta: Any) -> None:
    scene = Scene()
    scene.consumer.app.conf.timezone = "Pacific/Honolulu"

    assert not scene.arrives(message(eta)) or eta == "9999-12-31T23:59:59.999999"

    assert len(scene.entries()) == scene.acknowledged


@KINDS
def test_too_late_or_revoked_or_unreadable_it_is_celerys(message) -> None:
    scene = Scene()
    scene.revoked.add("revoked")
    broken = message(in_seconds(60))
    broken.errors = [ValueError("compressed, but not with this")]

    assert not scene.arrives(message(in_seconds(60), expires=in_seconds(-1)))
    assert not scene.arrives(message(in_seconds(60), expires="never"))
    assert not scene.arrives(message(in_seconds(60), id="revoked"))
    assert not scene.arrives(message(in_seconds(60), id=None))
    assert not scene.arrives(broken)
    assert scene.arrives(message(in_seconds(60), expires=in_seconds(90)))

    assert scene.acknowledged == 1


@pytest.mark.parametrize("enable_utc", [True, False])
@pytest.mark.parametrize("eta", ["2027-01-15T08:00:00", "2027-01-15T08:00:00+02:00", "2027-01-15T08:00:00Z"])
def test_a_time_is_read_as_celery_reads_it(eta: str, enable_utc: bool) -> None:
    app = hardened_app("zoned", timezone="America/New_York", enable_utc=enable_utc)

    naive: Any = maybe_iso8601(eta)
    moment = maybe_make_aware(naive, app.conf.timezone)

    assert due_of(eta, app) == moment.timestamp()
    assert due_of(moment, app) == moment.timestamp()
    assert due_of(moment.astimezone(timezone(timedelta(hours=5))), app) == moment.timestamp()


@KINDS
def test_a_copy_is_parked_once_and_different_works_apart(message) -> None:
    scene = Scene()
    first = message(in_seconds(60))

    for _ in range(2):
        assert scene.arrives(first)
    assert len(scene.entries()) == 1
    other_body = message(in_seconds(60))
    other_body.body = b"[[1], {}, {}]"
    assert scene.arrives(other_body)
    assert scene.arrives(message(in_seconds(61)))
    assert scene.arrives(message(in_seconds(60), retries=1))
    assert scene.arrives(message(in_seconds(60), hardening_key="k", hardening_replay=1))

    assert len(scene.entries()) == 5


def test_a_message_of_amqp_keeps_what_it_is() -> None:
    scene = Scene()
    body = b"\x00\xff\x80"
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    extra: dict[str, Any] = {
        "x-death": [{"count": 3}],
        "x-first-death-queue": "q",
        "x-delivery-count": 4,
        "compression": "application/x-gzip",
        FIRST_HEADER: "1.000 task-1",
        DUE_HEADER: NOW + 999,
        "own": {"when": moment, "raw": b"\xff", "list": [1, None, True, 1.5]},
    }

    scene.arrives(amqp(in_seconds(60), body=body, **extra))

    [entry] = scene.entries()
    sent = load_message(entry.message, queue=entry.queue)
    assert sent.body == body
    assert (sent.exchange, sent.routing_key, sent.queue) == ("orders", "a.b", "shop")
    assert (sent.content_type, sent.content_encoding) == ("application/json", "utf-8")
    kept = {name: value for name, value in extra.items() if not name.startswith(("x-", "compression"))}
    assert sent.headers == {**headers_of(in_seconds(60)), **kept, DELAYED_HEADER: entry.id}
    assert sent.properties == {"priority": 5, "correlation_id": "task-1", "reply_to": "r"}


def test_a_message_of_redis_goes_back_as_it_lay_in_its_list() -> None:
    scene = Scene()
    message = on_redis(in_seconds(60), priority=6, info={"list_key": "shop\x06\x166"})

    scene.arrives(message)

    [entry] = scene.entries()
    assert (entry.queue, entry.list_key) == ("shop", "shop\x06\x166")
    sent = json.loads(entry.message)
    assert sent["headers"].pop(DELAYED_HEADER) == entry.id
    assert sent["properties"]["delivery_info"] == {"exchange": "", "routing_key": "shop"}
    sent["properties"]["delivery_info"] = message.delivery_info
    assert sent == message._raw
    assert DELAYED_HEADER not in message.headers


def test_without_its_list_the_queue_and_priority_of_a_redis_message_say_it() -> None:
    scene = Scene()
    Channel.bindings = {
        ("events", "a"): ["shop", "elsewhere"],
        ("events", "b"): ["shop", "post"],
        ("events", "c"): ["elsewhere"],
    }

    assert scene.arrives(on_redis(in_seconds(60), exchange="events", routing_key="a", priority=3))
    # Which of two queues it came from cannot be told.
    assert not scene.arrives(on_redis(in_seconds(60), exchange="events", routing_key="b"))
    assert not scene.arrives(on_redis(in_seconds(60), exchange="events", routing_key="c"))

    assert [entry.list_key for entry in scene.entries()] == ["shop\x06\x163"]


def test_what_ends_with_its_worker_or_is_of_no_known_queue_stays_in_the_worker() -> None:
    scene = Scene()
    scene.consumer.task_consumer._active_tags |= {"passing": "t3", "own": "t4"}

    for tag in ("t3", "t4", "t9", None):
        assert not scene.arrives(amqp(in_seconds(60), tag=tag))

    assert scene.entries() == []


@KINDS
def test_a_released_message_is_never_taken_for_its_old_copy(message) -> None:
    scene = Scene()
    scene.arrives(message(in_seconds(60)))
    [entry] = scene.entries()
    mine = {DELAYED_HEADER: entry.id}
    scene.now += 61
    scene.store.release(lambda entries: [each.id for each in entries], limit=10)
    assert scene.store.fate(entry.id) is Fate.RELEASED

    released = message(in_seconds(60), **mine)
    assert not scene.arrives(released)
    assert is_due(released)
    released.delivery_info["redelivered"] = True
    assert not scene.arrives(released)
    scene.now -= 61  # A worker whose clock is slow.
    assert not scene.arrives(released)

    old = message(in_seconds(60))
    old.delivery_info["redelivered"] = True
    scene.now += 61
    assert scene.arrives(old)
    assert scene.acknowledged == 2
    assert not is_due(old)


@KINDS
def test_the_old_copy_of_a_cancelled_one_is_acknowledged_and_one_never_parked_runs(message) -> None:
    scene = Scene()
    scene.arrives(message(in_seconds(60)))
    scene.store.cancel(scene.entries()[0].id, by="ann")
    old = message(in_seconds(60))
    old.delivery_info["redelivered"] = True
    near = message(in_seconds(5))
    near.delivery_info["redelivered"] = True

    assert scene.arrives(old)
    assert not scene.arrives(near)

    assert scene.acknowledged == 2
    assert scene.entries() == []


@KINDS
def test_a_mark_that_was_inherited_from_another_message_says_nothing(message) -> None:
    scene = Scene()

    assert scene.arrives(message(in_seconds(60), **{DELAYED_HEADER: "0" * 32}))


def test_celery_starts_what_was_released_at_once_and_the_task_still_reads_its_time() -> None:
    app = hardened_app("due")

    @app.task(name="t", shared=False)
    def t(): ...

    message = send(t, countdown=60)
    waiting = request_of(app, message)
    assert waiting.eta is not None
    mark_due(message)

    request = request_of(app, message)

    assert request.eta is None
    assert request.request_dict["eta"] == message.headers["eta"]


class Down:
    """A store that does not answer."""

    def __init__(self) -> None:
        self.asked = 0

    def park(self, entry: Delayed) -> Fate:
        self.asked += 1
        raise StoreUnavailable("no store")

    def fate(self, entry_id: str) -> Fate:
        return self.park(None)  # type: ignore[arg-type]


@KINDS
def test_a_store_that_is_down_leaves_the_message_to_celery_and_is_left_alone_for_a_while(
    message, caplog, monkeypatch
) -> None:
    store = Down()
    scene = Scene(store=store)

    for _ in range(3):
        assert not scene.arrives(message(in_seconds(60)))
    assert (store.asked, scene.acknowledged) == (1, 0)

    later = time.monotonic() + 6
    monkeypatch.setattr("hardening.delayed.step.time.monotonic", lambda: later)
    assert not scene.arrives(message(in_seconds(60)))
    assert store.asked == 2
    assert [record.levelname for record in caplog.records if "worker's memory" in record.message] == [
        "WARNING"
    ]


def test_other_brokers_have_no_parking() -> None:
    assert prepare(SimpleNamespace(app=hardened_app("in memory"))) is None


def test_it_is_asked_first() -> None:
    assert STEPS[0] == "hardening.delayed.step"
