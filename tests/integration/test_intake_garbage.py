"""What was set aside in the Redis list of garbage becomes letters, one at a time, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from hardening.intake.garbage import take_in_garbage
from hardening.leases.store import GARBAGE, pack
from tests.helpers.hardened_apps import LETTERS, RecordingSink, hardened_app

pytestmark = pytest.mark.usefixtures("isolated", "recording")


@pytest.fixture
def app(redis_url: str) -> Any:
    return hardened_app(broker_url=redis_url)


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url) as client:
        yield client
        client.delete(GARBAGE)


def test_each_entry_is_a_letter_with_its_bytes_and_its_queue(app, client) -> None:
    client.lpush(GARBAGE, pack("shop\x06\x163", "w1", b"\xff first"), b"no entry", pack("shop", "w1", b""))

    take_in_garbage(app)

    assert [(each.payload.body, each.queue, each.reason) for each in LETTERS] == [
        (b"\xff first", "shop", "garbage"),
        (b"no entry", "", "garbage"),
        (b"", "shop", "garbage"),
    ]
    assert client.llen(GARBAGE) == 0


def test_without_a_store_every_entry_stays_in_its_place(app, client) -> None:
    RecordingSink.down = True
    client.set("celery_hardening.dead_letters", "in the way")
    client.lpush(GARBAGE, b"1", b"2")
    try:
        take_in_garbage(app)
        assert client.lrange(GARBAGE, 0, -1) == [b"2", b"1"]
    finally:
        client.delete("celery_hardening.dead_letters")

    RecordingSink.down = False
    take_in_garbage(app)

    assert [each.payload.body for each in LETTERS] == [b"1", b"2"]


def test_an_entry_that_was_read_by_one_who_died_is_the_same_letter(app, client) -> None:
    client.lpush(GARBAGE, pack("shop", "w1", b"x"))
    take_in_garbage(app)
    client.lpush(GARBAGE, pack("shop", "w1", b"x"))
    take_in_garbage(app)

    assert len({each.delivery_key for each in LETTERS}) == 1


def test_while_another_worker_reads_nobody_else_does(app, client) -> None:
    client.lpush(GARBAGE, b"1")
    client.set(f"{GARBAGE}.reader", "another", px=60_000)
    try:
        take_in_garbage(app)
        assert (client.llen(GARBAGE), LETTERS) == (1, [])
    finally:
        client.delete(f"{GARBAGE}.reader")


def test_a_redis_that_is_away_is_no_error(app) -> None:
    app = hardened_app("away", broker_url="redis://127.0.0.1:1/0")

    take_in_garbage(app)

    assert not LETTERS
