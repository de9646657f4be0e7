"""What the scripts promise, on a real Redis: each is one step, and says what it found."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from hardening.leases.auditor import audit, audit_in_turn
from hardening.leases.holdings import Holdings, NewsOf
from hardening.leases.keeper import Keeper
from hardening.leases.scripts import TAKE
from hardening.leases.store import LeaseKeys, LeaseStore, pack, unpack
from hardening.leases.terms import Lease
from hardening.testing.servers import RedisServer
from tests.helpers.wait import wait_until

LEASE_SECONDS = 0.4
PLAIN = ("unacked_index", "unacked")
KEYS = LeaseKeys.beside(index="unacked_index", messages="unacked")


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.url_for(7)) as opened:
        opened.flushdb()
        yield opened


@pytest.fixture
def store(client: redis.Redis) -> LeaseStore:
    return store_of(client)


def store_of(client: redis.Redis, holder: str = "a", *, seconds: float = LEASE_SECONDS) -> LeaseStore:
    made = LeaseStore(client, KEYS, seconds=seconds, holder=holder, quiet_seconds=0.0)
    made.expired(1)  # Nobody has swept before.
    return made


def take(client: redis.Redis, tag: str, *lists: str, seconds: float = LEASE_SECONDS) -> Any:
    keys = [KEYS.index, KEYS.messages, *lists]
    return client.eval(TAKE, len(keys), *keys, tag, seconds, "a")


def over(store: LeaseStore) -> None:
    """Wait until a lease has run out."""
    wait_until(lambda: store.expired(10), 5)


def test_a_message_is_taken_and_leased_in_one_step_from_the_first_list_that_has_one(client, store) -> None:
    client.lpush("low", b"third")
    client.lpush("high", b"first", b"second")

    assert take(client, "t1", "empty", "high", "low") == [b"high", b"first"]
    assert take(client, "t2", "empty", "high", "low") == [b"high", b"second"]
    assert take(client, "t3", "empty", "high", "low") == [b"low", b"third"]
    assert take(client, "t4", "empty", "high", "low") is None

    assert client.zcard(KEYS.index) == client.hlen(KEYS.messages) == 3
    entry = unpack(client.hget(KEYS.messages, "t1"))
    assert (entry.list_key, entry.holder, entry.message) == ("high", "a", b"first")


def test_a_full_redis_refuses_to_take_and_keeps_the_message(client, store) -> None:
    client.lpush("queue", b"message")
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            take(client, "t1", "queue")
    finally:
        client.config_set("maxmemory", 0)

    assert client.lrange("queue", 0, -1) == [b"message"]
    assert client.hlen(KEYS.messages) == 0


def test_a_renewed_lease_is_not_found_by_a_sweep(client, store) -> None:
    client.lpush("queue", b"message")
    take(client, "t1", "queue")
    until = time.monotonic() + 3 * LEASE_SECONDS
    while time.monotonic() < until:
        assert store.renew(["t1"]) == store.renew([])
        assert store.expired(10) == []
        time.sleep(LEASE_SECONDS / 4)


def test_an_expired_message_goes_back_to_its_list_to_be_taken_next(client, store) -> None:
    client.lpush("queue", b"first", b"second")
    take(client, "t1", "queue")
    over(store)

    assert [each.entry.message for each in store.expired(10)] == [b"first"]
    assert store.restore("t1", list_key="queue", message=b"first")
    assert not store.restore("t1", list_key="queue", message=b"first")

    assert client.lrange("queue", 0, -1) == [b"second", b"first"]
    assert client.hlen(KEYS.messages) == client.zcard(KEYS.index) == 0


def test_a_lease_that_is_renewed_between_the_look_and_the_restore_stays(client, store) -> None:
    client.lpush("queue", b"message")
    take(client, "t1", "queue")
    over(store)
    store.renew(["t1"])

    assert not store.restore("t1", list_key="queue", message=b"message")
    assert client.llen("queue") == 0


def test_a_holder_learns_what_was_given_to_others_and_what_redis_lost(client, store) -> None:
    client.lpush("queue", b"one", b"two")
    take(client, "given", "queue")
    take(client, "forgotten", "queue")
    over(store)
    store.restore("given", list_key="queue", message=b"one")
    client.hdel(KEYS.messages, "forgotten")

    found = store.renew(["given", "forgotten"])

    assert (found.lost, found.vanished) == (("given",), ("forgotten",))


def test_an_acknowledgement_says_whether_others_had_the_message(client, store) -> None:
    client.lpush("queue", b"one", b"two")
    take(client, "mine", "queue")
    take(client, "given", "queue")
    assert store.settle("mine")
    assert store.settle("mine"), "the answer to the first one may have been lost"

    over(store)
    store.restore("given", list_key="queue", message=b"two")
    assert not store.settle("given")


def test_a_message_that_redis_lost_can_be_given_back_from_memory_and_only_once(client, store) -> None:
    client.lpush("queue", b"message")
    take(client, "t1", "queue")
    client.delete(KEYS.index, KEYS.messages)

    assert store.give_back("t1", list_key="queue", message=b"message")
    assert not store.give_back("t1", list_key="queue", message=b"message")

    assert client.lrange("queue", 0, -1) == [b"message"]


def test_after_a_time_in_which_nobody_could_renew_the_living_come_first(client) -> None:
    quiet = LeaseStore(client, KEYS, seconds=LEASE_SECONDS, holder="b", quiet_seconds=0.7)
    client.lpush("queue", b"message")
    take(client, "t1", "queue")
    client.hset(KEYS.sweeps, mapping={"at": time.time() - 60, "quiet": 0})
    time.sleep(LEASE_SECONDS)

    assert quiet.expired(10) == []
    assert not quiet.restore("t1", list_key="queue", message=b"message")
    over(quiet)
    assert quiet.restore("t1", list_key="queue", message=b"message")


def test_a_clock_that_goes_back_lengthens_no_lease(client, store) -> None:
    client.lpush("queue", b"message")
    take(client, "t1", "queue")
    # As it looks when the server's clock went back by an hour.
    client.zadd(KEYS.index, {"t1": time.time() + 3600})
    client.hset(KEYS.sweeps, mapping={"at": time.time() + 3599, "quiet": time.time() + 3599})

    wait_until(lambda: store.expired(10), 5)


def test_an_old_sweep_never_keeps_others_quiet_for_longer_than_its_time(client, store) -> None:
    client.lpush("queue", b"message")
    take(client, "t1", "queue")
    client.hset(KEYS.sweeps, mapping={"at": time.time(), "quiet": time.time() + 9999})

    wait_until(lambda: store.expired(10), 5)


def test_what_cannot_go_back_does_not_stand_in_the_way_of_the_rest(client, store) -> None:
    client.lpush("queue", *(str(number) for number in range(250)))
    for number in range(250):
        take(client, f"t{number}", "queue")
    client.hset(KEYS.messages, "t0", "no entry")
    client.hset(KEYS.messages, "t1", pack("a string", "a", b"message"))
    client.set("a string", "of somebody's")
    over(store)
    time.sleep(LEASE_SECONDS)

    found = [store.recover(100, lambda message, holder: message) for _ in range(4)]

    assert sum(len(each.restored) for each in found) == client.llen("queue") == 248
    assert [tag for each in found for tag, _ in each.failed] == ["t1"]
    assert client.lrange(KEYS.garbage, 0, -1) == [b"no entry"]
    assert client.zscore(KEYS.index, "t1") > time.time() + 30
    assert [each.more for each in found] == [True, True, False, False]


def test_a_sweep_of_thousands_leaves_the_keeper_time_for_its_own(client) -> None:
    store = store_of(client, "b", seconds=0.9)
    client.lpush("queue", *(str(number) for number in range(5000)))
    for number in range(5000):
        take(client, f"t{number}", "queue", seconds=0.1)
    holdings = holding(store, "mine")
    keeper = keeper_of(store, holdings)
    keeper.start()
    try:
        wait_until(lambda: client.llen("queue") == 5000, 60)
    finally:
        keeper.stop()
    assert client.hexists(KEYS.messages, "mine")
    assert NewsOf.LOST not in [news.of for news in holdings.news]


@pytest.mark.parametrize("keys", [(KEYS.index, KEYS.messages), PLAIN])
def test_a_message_that_no_index_knows_is_found_and_covered_again(client, store, keys) -> None:
    index, messages = keys
    client.hset(messages, mapping={"lost": "x", "kept": "y"})
    client.zadd(index, {"kept": time.time() + 60})

    assert audit(store, PLAIN, dry_run=True) == ["lost"]
    assert client.zscore(index, "lost") is None
    assert audit_in_turn(store, PLAIN, every_seconds=60) == ["lost"]
    assert client.zscore(index, "lost") is not None
    assert audit(store, PLAIN) == audit_in_turn(store, PLAIN, every_seconds=60) == []


@pytest.mark.parametrize("command", ["eval", "evalsha", "blmove", "zadd"])
def test_a_user_who_may_not_do_what_leases_need_is_told_so(client, store, redis_server, command) -> None:
    store.probe()
    client.acl_setuser(
        "poor", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", f"-{command}"]
    )
    try:
        poor = redis.Redis(port=redis_server.port, db=7, username="poor", password="secret")
        with poor, pytest.raises(redis.exceptions.ResponseError):
            LeaseStore(poor, KEYS, seconds=1, holder="a").probe()
    finally:
        client.acl_deluser("poor")


def test_what_everybody_holds_can_be_listed(client, store) -> None:
    client.lpush("queue", b"message")
    take(client, "t1", "queue", seconds=60)

    [(tag, seconds, entry)] = store.held()

    assert (tag, entry.message, entry.holder) == ("t1", b"message", "a")
    assert 50 < seconds <= 60


def holding(store: LeaseStore, tag: str = "t1", message: bytes = b"message") -> Holdings:
    holdings = Holdings()
    holdings.store = store
    holdings.enter(tag, list_key="queue", message=message)
    return holdings


def test_an_acknowledgement_that_redis_does_not_take_is_kept_and_sent_later(client, store) -> None:
    client.lpush("queue", b"message")
    take(client, "t1", "queue", seconds=60)
    down = redis.Redis(port=1, retry=Retry(NoBackoff(), 0))
    holdings = holding(store_of(client))
    holdings.store = LeaseStore(down, KEYS, seconds=1, holder="a")

    holdings.settle("t1")
    assert holdings.unsent() == 1
    assert holdings.tags() == ["t1"], "its lease goes on"
    holdings.store = store
    holdings.send_unsent()

    assert (holdings.unsent(), len(holdings), client.hlen(KEYS.messages)) == (0, 0, 0)
    assert [news.of for news in holdings.news] == [NewsOf.FAILED]


def test_a_late_acknowledgement_is_news(client, store) -> None:
    client.lpush("queue", b"message")
    take(client, "t1", "queue")
    holdings = holding(store)
    over(store)
    store.restore("t1", list_key="queue", message=b"message")

    holdings.settle("t1")

    assert [news.of for news in holdings.news] == [NewsOf.LATE]
    assert client.llen("queue") == 1


def test_everything_goes_back_in_the_order_in_which_it_was_taken(client, store) -> None:
    client.lpush("queue", b"1", b"2", b"3", b"4")
    holdings = Holdings()
    holdings.store = store
    for tag in "abc":
        answer = take(client, tag, "queue", seconds=60)
        holdings.enter(tag, list_key="queue", message=answer[1])

    assert holdings.give_back_all() == ["c", "b", "a"]

    assert client.lrange("queue", 0, -1) == [b"4", b"3", b"2", b"1"]


def keeper_of(store: LeaseStore, holdings: Holdings, **more) -> Keeper:
    keeper = Keeper(holdings, Lease(seconds=0.9, renew_every=0.3, wedged_after=more.pop("wedged_after", 60)))
    keeper.use(lambda: store)
    return keeper


def test_the_keeper_renews_and_holds_again_what_redis_lost(client) -> None:
    store = store_of(client, seconds=0.9)
    holdings = holding(store)
    keeper = keeper_of(store, holdings)
    keeper.start()
    try:
        wait_until(lambda: client.hexists(KEYS.messages, "t1"), 5)
        assert [news.of for news in holdings.news] == [NewsOf.HELD_AGAIN]
        client.delete(KEYS.index, KEYS.messages)
        wait_until(lambda: client.hexists(KEYS.messages, "t1"), 5)
    finally:
        keeper.stop()


def test_the_keeper_gives_what_a_silent_worker_held_to_others(client) -> None:
    store = store_of(client, "b", seconds=0.9)
    client.lpush("queue", b"message")
    take(client, "t1", "queue", seconds=0.2)
    holdings = Holdings()
    keeper = keeper_of(store, holdings)
    keeper.start()
    try:
        wait_until(lambda: client.llen("queue") == 1, 5)
        wait_until(lambda: [(news.of, news.about) for news in holdings.news] == [(NewsOf.RECOVERED, "a")], 5)
    finally:
        keeper.stop()


def test_a_keeper_whose_main_loop_is_wedged_renews_no_more(client) -> None:
    store = store_of(client, seconds=0.9)
    holdings = holding(store)
    keeper = keeper_of(store, holdings, wedged_after=0.9)
    keeper.start()
    try:
        wait_until(lambda: NewsOf.WEDGED in [news.of for news in holdings.news], 10)
        keeper.beat()
        wait_until(lambda: store.renew(["t1"]).lost or client.hexists(KEYS.messages, "t1"), 5)
    finally:
        keeper.stop()


def test_a_main_loop_that_waits_for_its_connection_is_not_wedged(client) -> None:
    store = store_of(client, seconds=0.9)
    holdings = holding(store)
    keeper = keeper_of(store, holdings, wedged_after=0.9)
    keeper.excuse()
    keeper.start()
    try:
        wait_until(lambda: client.hexists(KEYS.messages, "t1"), 5)
        time.sleep(2)
        assert NewsOf.WEDGED not in [news.of for news in holdings.news]
    finally:
        keeper.stop()


def test_a_fork_finds_the_keeper_asleep(client) -> None:
    import os

    store = store_of(client, seconds=0.9)
    keeper = keeper_of(store, holding(store))
    keeper.start()
    try:
        for _ in range(30):
            child = os.fork()
            if child == 0:
                # The child's copy of the gate is open, and nothing of the thread is in it.
                os._exit(0 if keeper._gate.acquire(False) else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        keeper.stop()


def test_a_keeper_that_was_stopped_renews_nothing(client) -> None:
    store = store_of(client, seconds=0.9)
    holdings = holding(store)
    keeper = keeper_of(store, holdings)
    keeper.start()
    wait_until(lambda: client.hexists(KEYS.messages, "t1"), 5)
    keeper.stop()
    client.delete(KEYS.index, KEYS.messages)
    time.sleep(1)
    assert not client.hexists(KEYS.messages, "t1")
