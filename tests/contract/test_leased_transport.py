"""kombu with our transport, on a real Redis and without Celery: its private parts do as we rely on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from kombu import Connection, Consumer, Exchange, Queue
from kombu.asynchronous import Hub

from hardening.leases.holdings import Holdings
from hardening.leases.store import GARBAGE, entry_of
from hardening.leases.strays import Strays
from hardening.leases.terms import Lease
from hardening.leases.transport import MOST_BELLS, lease_connection, open_store, plain_keys_of
from hardening.testing.servers import RedisServer
from tests.helpers.wait import wait_until

LISTS = ("queue", "other", "queue\x06\x169")


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.url_for(8)) as opened:
        opened.flushdb()
        yield opened


def queue(name: str) -> Queue:
    return Queue(name, Exchange(""), routing_key=name)


class Worker:
    """What a worker does with its connection."""

    def __init__(self, url: str, *, prefetch: int = 10, lease: Lease | None = None, **options: Any) -> None:
        self.holdings = Holdings()
        self.lease = lease or Lease()
        self.url, self.options, self.prefetch = url, options, prefetch
        self.got: list[Any] = []
        self.connect()

    def connect(self) -> None:
        self.connection = Connection(self.url, transport_options=self.options)
        lease_connection(self.connection, self.holdings, self.lease, "w")
        channel: Any = self.connection.default_channel
        channel.lease_messages()
        self.channel = channel
        self.holdings.store = open_store(self.channel, lease=self.lease, holder="w")
        self.channel.basic_qos(0, self.prefetch, False)
        self.consumer = Consumer(
            self.channel, [queue("queue"), queue("other")], on_message=self.got.append, accept=["json"]
        )
        self.consumer.consume()

    def read(self, count: int = 1, timeout: float = 10) -> list[Any]:
        """Messages, as many as that in all."""
        deadline = time.monotonic() + timeout
        while len(self.got) < count and time.monotonic() < deadline:
            self.turn(0.2)
        return self.got

    def turn(self, seconds: float) -> None:
        try:
            self.connection.drain_events(timeout=seconds)
        except TimeoutError:
            return

    def close(self) -> None:
        self.connection.close()
        store: Any = self.holdings.store
        store.client.close()


class InALoop(Worker):
    """As on prefork: the transport is part of an event loop."""

    hub: Any = None

    def connect(self) -> None:
        if self.hub is not None:
            self.hub.close()
        self.hub = Hub()
        super().connect()
        self.connection.transport.register_with_event_loop(self.connection.connection, self.hub)
        self.hub.propagate_errors = self.connection.connection_errors
        self.loop = self.hub.create_loop()

    def turn(self, seconds: float) -> None:
        self.hub.call_later(seconds, lambda: None)
        next(self.loop)

    def close(self) -> None:
        super().close()
        self.hub.close()


@pytest.fixture(params=[Worker, InALoop])
def worker(request: pytest.FixtureRequest, redis_server: RedisServer) -> Iterator[Callable[..., Worker]]:
    made: list[Worker] = []

    def make(**options: Any) -> Worker:
        made.append(request.param(redis_server.url_for(8), **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def send(redis_server: RedisServer, body: Any, name: str = "queue", **options: Any) -> None:
    with Connection(redis_server.url_for(8)) as connection:
        producer = connection.Producer()
        producer.publish(body, routing_key=name, declare=[queue(name)], **options)


def counts(client: redis.Redis) -> tuple[int, int, int]:
    """Waiting, leased, and held as plain workers do it."""
    waiting = sum(client.llen(key) for key in LISTS)
    assert client.hlen("unacked.leased") == client.zcard("unacked_index.leased")
    return waiting, client.hlen("unacked.leased"), client.hlen("unacked")


ATOMIC = pytest.mark.parametrize("atomic", [True, False])


def lease(atomic: bool) -> Lease:
    return Lease(atomic_take=atomic)


@ATOMIC
def test_messages_are_leased_in_our_keys_and_acknowledged(redis_server, client, worker, atomic) -> None:
    for number in range(3):
        send(redis_server, number)
    mine = worker(lease=lease(atomic))

    got = mine.read(3)

    assert [message.payload for message in got] == [0, 1, 2]
    assert counts(client) == (0, 3, 0)
    assert len({message.delivery_tag for message in got}) == 3
    for message in got:
        message.ack()
    assert counts(client) == (0, 0, 0)
    assert len(mine.holdings) == 0


def test_a_message_for_an_idle_worker_rings(redis_server, client, worker) -> None:
    mine = worker()
    mine.turn(0.1)
    mine.turn(0.1)
    for number in range(5):
        send(redis_server, number)
        sent_at = time.monotonic()
        mine.read(number + 1)
        assert [message.payload for message in mine.got] == list(range(number + 1))
        assert time.monotonic() - sent_at < 5


def test_an_idle_worker_costs_a_few_commands_a_second(client, worker) -> None:
    mine = worker()
    for _ in range(3):
        mine.turn(0.5)
    before = client.info("stats")["total_commands_processed"]
    until = time.monotonic() + 3
    while time.monotonic() < until:
        mine.turn(0.5)
    assert (
        client.info("stats")["total_commands_processed"] - before < 3 * 15
    )  # Those inside the script are counted, one for each list.


@ATOMIC
def test_no_more_is_taken_than_the_prefetch_allows(redis_server, client, worker, atomic) -> None:
    for number in range(6):
        send(redis_server, number)
    mine = worker(prefetch=2, lease=lease(atomic))
    mine.read(2)
    mine.turn(0.3)

    assert len(mine.got) == 2
    assert counts(client)[1] == 2
    mine.got[0].ack()
    mine.read(3)
    assert len(mine.got) == 3


@ATOMIC
def test_a_rejected_message_goes_behind_the_others_or_away(redis_server, client, worker, atomic) -> None:
    for number in range(2):
        send(redis_server, number)
    mine = worker(prefetch=1, lease=lease(atomic))
    mine.read(1)[0].reject(requeue=True)
    mine.read(2)

    assert [message.payload for message in mine.got] == [0, 1]
    mine.got[1].reject(requeue=False)
    again = mine.read(3)[2]
    assert again.payload == 0
    assert again.headers["redelivered"] is True
    again.ack()
    assert counts(client) == (0, 0, 0)


def test_a_closed_channel_gives_everything_back_in_its_order(redis_server, client, worker) -> None:
    for number in range(4):
        send(redis_server, number)
    first = worker(prefetch=3)
    first.read(3)
    first.channel.close()

    assert counts(client) == (4, 0, 0)
    assert [message.payload for message in worker().read(4)] == [0, 1, 2, 3]


def test_a_connection_that_broke_gives_nothing_back_and_the_next_acknowledges(
    redis_server, client, worker
) -> None:
    for number in range(3):
        send(redis_server, number)
    mine = worker(prefetch=2)
    old = list(mine.read(2))
    mine.holdings.reconnecting = True
    mine.connection.close()
    mine.holdings.reconnecting = False

    mine.connect()
    mine.turn(0.3)

    assert counts(client) == (1, 2, 0), "what is held still counts against the prefetch limit"
    for message in old:
        message.ack()
    mine.read(3)
    assert [message.payload for message in mine.got] == [0, 1, 2]


def test_what_nobody_acknowledges_is_not_held(redis_server, client, worker) -> None:
    mine = worker()
    replies: list[Any] = []
    consumer = Consumer(mine.channel, [queue("replies")], on_message=replies.append, no_ack=True)
    consumer.consume()
    send(redis_server, 1, name="replies")
    for _ in range(20):
        if not replies:
            mine.turn(0.2)

    assert len(replies) == 1
    assert counts(client) == (0, 0, 0)
    assert len(mine.holdings) == 0


def test_other_channels_of_the_connection_are_kombus_own(redis_server, client, worker) -> None:
    mine = worker()
    send(redis_server, 1)
    mine.read(1)
    send(redis_server, 2, name="of the project")
    theirs: list[Any] = []
    channel: Any = mine.connection.channel()
    consumer = Consumer(channel, [queue("of the project")], on_message=theirs.append, accept=["json"])
    consumer.consume()
    for _ in range(20):
        if not theirs:
            mine.turn(0.2)

    assert [message.payload for message in theirs] == [2]
    assert (client.hlen("unacked.leased"), client.hlen("unacked")) == (1, 1)
    channel.close()
    assert (client.hlen("unacked.leased"), client.hlen("unacked"), client.llen("of the project")) == (1, 0, 1)


def test_what_is_no_message_is_set_aside_and_the_next_is_served(redis_server, client, worker) -> None:
    client.lpush("queue", b"\xff garbage", json.dumps({"body": "of nobody"}))
    send(redis_server, 1)
    mine = worker()

    assert mine.read(1)[0].payload == 1

    assert sorted(entry_of(each).message for each in client.lrange(GARBAGE, 0, -1)) == [  # type: ignore[union-attr]
        json.dumps({"body": "of nobody"}).encode(),
        b"\xff garbage",
    ]
    assert counts(client) == (0, 1, 0)
    assert len(mine.holdings) == 1


def test_an_envelope_of_which_kombu_makes_no_message_is_one_that_cannot_be_decoded(
    redis_server, client, worker
) -> None:
    mine = worker()
    failed: list[Any] = []
    mine.consumer.on_decode_error = lambda message, exc: failed.append(message)
    for number, odd in enumerate([{"body": "abcde"}, {"headers": [1]}, {"headers": "text"}]):
        send(redis_server, number)
        envelope = json.loads(client.lpop("queue"))
        client.lpush("queue", json.dumps(envelope | odd))
    send(redis_server, ["good"])

    assert mine.read(1)[0].payload == ["good"]

    wait_until(lambda: len(failed) == 3, 10)
    assert counts(client) == (0, 4, 0)
    for message in failed:
        message.ack()
    assert counts(client) == (0, 1, 0)


def test_what_cannot_be_set_aside_comes_back_by_its_lease(redis_server, client, worker) -> None:
    mine = worker()
    client.set(GARBAGE, "in the way")
    client.lpush("queue", b"\xff garbage")
    send(redis_server, 1)

    assert mine.read(1)[0].payload == 1

    assert len(mine.holdings) == 1
    assert client.hlen("unacked.leased") == 2, "nobody renews the lease of the other"


def test_a_list_of_another_priority_is_found_and_then_watched(redis_server, client, worker) -> None:
    mine = worker(priority_steps=[0, 3, 6, 9])
    for number in range(3):
        send(redis_server, number, priority=9)
        mine.read(number + 1)

    mine.turn(0.3)
    mine.turn(0.3)
    assert [message.payload for message in mine.got] == [0, 1, 2]
    assert sorted(mine.channel._bells) == ["other", "queue", "queue\x06\x169"]


def test_many_queues_are_watched_with_a_bounded_number_of_connections(redis_server, client, worker) -> None:
    mine = worker(max_connections=3)
    for number in range(40):
        mine.consumer.add_queue(queue(f"q{number}"))
    mine.consumer.consume()
    for _ in range(3):
        mine.turn(0.3)
    assert len(mine.channel._bells) == MOST_BELLS

    for number in (0, 39):
        send(redis_server, number, name=f"q{number}")
    assert sorted(message.payload for message in mine.read(2)) == [0, 39]


def test_an_idle_worker_of_a_full_redis_waits_and_goes_on(redis_server, client, worker) -> None:
    mine = worker()
    mine.turn(0.2)
    mine.turn(0.2)
    client.config_set("maxmemory", 1)
    try:
        # The bells are refused as well, from the next time on that they are put on.
        for bell in mine.channel._bells.values():
            bell.client.connection.disconnect()
            bell.since = None
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            mine.turn(0.2)
    finally:
        client.config_set("maxmemory", 0)
    send(redis_server, 1)
    assert [message.payload for message in mine.read(1)] == [1]


def test_a_script_that_the_server_forgot_is_sent_again(redis_server, client, worker) -> None:
    mine = worker()
    for number in range(3):
        send(redis_server, number)
        mine.read(number + 1)
        client.script_flush()

    assert [message.payload for message in mine.got] == [0, 1, 2]


def test_a_message_knows_the_list_that_it_came_from(redis_server, client, worker) -> None:
    mine = worker(global_keyprefix="")
    send(redis_server, 1, name="other")

    assert mine.read(1)[0].delivery_info["list_key"] == "other"


def test_the_keys_of_plain_workers_are_the_ones_that_the_project_named(worker) -> None:
    mine = worker(unacked_key="mine", unacked_index_key="mine_index", global_keyprefix="shop:")

    assert plain_keys_of(mine.channel) == ("shop:mine_index", "shop:mine")
    assert mine.holdings.store.keys.messages == "shop:mine.leased"


def test_what_plain_workers_left_is_swept_with_their_timeout(redis_server, client, worker) -> None:
    raw = {"body": "MQ==", "content-type": "application/json", "content-encoding": "utf-8", "headers": {}}
    raw["properties"] = {
        "delivery_tag": "old",
        "body_encoding": "base64",
        "delivery_info": {"exchange": "", "routing_key": "queue"},
    }
    client.hset("unacked", "old", json.dumps([raw, "", "queue"]))
    client.zadd("unacked_index", {"old": time.time() - 50})
    mine = worker(visibility_timeout=100)

    mine.channel.qos.restore_visible(num=10, interval=1)
    assert counts(client) == (0, 0, 1)
    client.zadd("unacked_index", {"old": time.time() - 150})
    mine.channel.qos.restore_visible(num=10, interval=1)
    assert mine.read(1)[0].payload == 1
    assert counts(client) == (0, 1, 0)


def test_a_killed_connection_is_seen(client, worker) -> None:
    mine = worker()
    mine.turn(0.1)
    mine.turn(0.1)
    errors = mine.connection.connection_errors

    def broke() -> bool:
        for each in client.client_list():
            if int(each["id"]) != client.client_id():
                client.client_kill_filter(_id=each["id"])
        try:
            mine.turn(0.2)
        except errors:
            return True
        return False

    wait_until(broke, 10)


def test_a_message_that_nothing_refers_to_goes_back_and_others_stay(redis_server, client, worker) -> None:
    for number in range(2):
        send(redis_server, number)
    mine = worker()
    mine.read(2)
    strays = Strays(mine.holdings)
    kept, dropped = mine.got
    mine.got.clear()

    assert strays.give_back() == strays.give_back() == []
    del dropped
    assert strays.give_back() == [], "it may be on its way"
    assert [message.payload for message in strays.give_back()] == [1]
    assert counts(client) == (1, 1, 0)
    kept.ack()
