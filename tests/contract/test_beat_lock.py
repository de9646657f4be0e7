"""Every leader lock keeps the same promises: one holder, epochs that only grow, the store's own clock."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis
from celery import Celery
from django.db import OperationalError, connections, transaction

from beat_leader.lock import LeaderLock, LockUnavailable
from beat_leader.locks.database import DatabaseLock
from beat_leader.locks.memory import MemoryLock
from beat_leader.locks.redis import RedisLock
from beat_leader.models import Lease
from hardening.core.statements import Statements
from hardening.testing.tcp_proxy import tcp_proxy
from tests.helpers.beat_locks import DATABASES, KINDS, REDIS, SERVERS, Locks, leader_locks, lease_table
from tests.helpers.databases import database_from_url
from tests.helpers.dlq_databases import database_alias_for, database_url
from tests.helpers.mishaps import rename, within
from tests.helpers.state_stores import redis_app
from tests.helpers.wait import wait_until

LEASE = 60.0


@pytest.fixture(params=KINDS)
def locks(request, tmp_path, django_db_blocker) -> Iterator[Locks]:
    with django_db_blocker.unblock(), leader_locks(request.param, request, tmp_path) as made:
        yield made


on = lambda *kinds: pytest.mark.parametrize("locks", kinds, indirect=True)  # noqa: E731


def test_the_first_wins_and_all_are_told_who_leads_and_for_how_long(locks) -> None:
    ours, other = locks.make(), locks.make()
    before = ours.look()
    won = ours.acquire("a", lease_seconds=LEASE)

    tried = other.acquire("b", lease_seconds=LEASE)

    assert isinstance(ours, LeaderLock)
    assert (before.holder, before.epoch, before.remaining_seconds) == ("", 0, 0.0)
    for told in (won, tried, other.look()):
        assert (told.holder, told.epoch) == ("a", 1)
        assert LEASE - 5 < told.remaining_seconds <= LEASE
        assert abs(told.now - time.time()) < 2
    assert before.now <= won.now <= tried.now


def test_of_many_that_try_at_once_one_wins(locks) -> None:
    start = threading.Barrier(8)
    answers = []

    def run(name: str) -> None:
        lock = locks.make()
        start.wait()
        try:
            for _ in range(3):  # A database may say of a lost race only that it was lost.
                answers.append(lock.acquire(name, lease_seconds=LEASE, at_least=7))  # noqa: PERF401
        finally:
            lock.close()

    threads = [threading.Thread(target=run, args=(f"b{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(answers) == 24
    assert len({answer.holder for answer in answers}) == 1
    # The winner asked three times.
    assert {answer.epoch for answer in answers} <= {8, 9, 10}
    assert locks.make().look().epoch == 10


def test_epochs_only_grow_whatever_ends_a_term(locks) -> None:
    lock, other = locks.make(), locks.make()
    epochs = [lock.acquire("a", lease_seconds=LEASE).epoch]
    epochs.append(lock.acquire("a", lease_seconds=LEASE).epoch)  # Another process of the same name.
    assert lock.resign("a", epochs[-1])
    epochs.append(other.acquire("b", lease_seconds=0.05).epoch)
    wait_until(lambda: lock.look().holder == "")
    assert lock.look().epoch == epochs[-1]
    epochs.append(lock.acquire("a", lease_seconds=LEASE, at_least=2).epoch)
    epochs.append(lock.acquire("a", lease_seconds=LEASE, at_least=4_000_000_000_000).epoch)
    lock.resign("a", epochs[-1])
    epochs.append(other.acquire("b", lease_seconds=LEASE, at_least=5).epoch)

    assert epochs == [1, 2, 3, 4, 4_000_000_000_001, 4_000_000_000_002]
    assert lock.look().epoch == epochs[-1]


def test_a_store_that_forgot_everything_goes_on_above_what_it_is_told(locks) -> None:
    lock = locks.make()
    for _ in range(3):
        lock.acquire("a", lease_seconds=LEASE)

    locks.forget()

    assert lock.renew("a", 3, lease_seconds=LEASE).holder == ""
    assert lock.acquire("b", lease_seconds=LEASE, at_least=3).epoch == 4
    assert (lock.renew("a", 3, lease_seconds=LEASE).holder, lock.resign("a", 3)) == ("b", False)


@on("redis")
def test_a_redis_that_lost_one_of_the_two_keys_does_not_go_back(locks, redis_url) -> None:
    lock = locks.make()
    for _ in range(3):
        lock.acquire("a", lease_seconds=LEASE)
    with redis.Redis.from_url(redis_url) as client:
        assert client.ttl("hardening:beat:epoch") == -1
        client.delete("hardening:beat:lease")
        assert lock.acquire("b", lease_seconds=LEASE).epoch == 4
        client.delete("hardening:beat:epoch")

    assert lock.acquire("a", lease_seconds=LEASE).holder == "b"
    assert lock.acquire("b", lease_seconds=LEASE).epoch == 5


def test_only_the_exact_term_renews_and_resigns(locks) -> None:
    lock = locks.make()
    lock.acquire("a", lease_seconds=5.0)
    epoch = lock.acquire("a", lease_seconds=5.0).epoch

    for holder, other in (("a", epoch - 1), ("a", epoch + 1), ("b", epoch)):
        told = lock.renew(holder, other, lease_seconds=LEASE)
        assert (told.holder, told.epoch) == ("a", epoch)
        assert told.remaining_seconds <= 5.0
        assert not lock.resign(holder, other)

    assert lock.renew("a", epoch, lease_seconds=LEASE).remaining_seconds > 5.0
    assert lock.resign("a", epoch)
    assert not lock.resign("a", epoch)
    assert lock.renew("a", epoch, lease_seconds=LEASE).holder == ""
    assert lock.look().holder == ""


def test_the_stores_clock_ends_a_lease_and_nobody_elses(locks, monkeypatch) -> None:
    lock = locks.make()
    if locks.kind != "memory":
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 3600)
    epoch = lock.acquire("a", lease_seconds=0.4).epoch
    assert lock.acquire("b", lease_seconds=LEASE).holder == "a"

    wait_until(lambda: lock.look().remaining_seconds == 0)

    assert lock.renew("a", epoch, lease_seconds=LEASE).holder == ""
    assert not lock.resign("a", epoch)
    assert lock.acquire("b", lease_seconds=LEASE).epoch == epoch + 1


def test_the_lock_in_memory_goes_by_the_clock_that_it_is_given() -> None:
    now = [100.0]
    lock = MemoryLock(lambda: now[0])
    lock.acquire("a", lease_seconds=6.0)

    now[0] = 105.9
    assert lock.acquire("b", lease_seconds=6.0).holder == "a"
    now[0] = 106.0
    assert lock.acquire("b", lease_seconds=6.0).holder == "b"


@on("redis", "postgres", "sqlite")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_after_a_fork_both_sides_use_it(locks) -> None:
    lock = locks.make()
    lock.acquire("a", lease_seconds=LEASE)

    child = os.fork()
    if not child:
        try:
            wins = [lock.acquire("a", lease_seconds=LEASE).holder for _ in range(20)]
            os._exit(0 if wins == ["a"] * 20 else 1)
        finally:
            os._exit(2)
    ours = [lock.acquire("a", lease_seconds=LEASE).holder for _ in range(20)]

    assert os.waitpid(child, 0)[1] == 0
    assert ours == ["a"] * 20
    assert lock.look().epoch == 41


@on(*SERVERS)
def test_what_it_wrote_stays_when_the_callers_transaction_does_not(locks) -> None:
    lock = locks.make()
    with pytest.raises(ZeroDivisionError), transaction.atomic(using="beat"):
        list(Lease.objects.using("beat").all())
        lock.acquire("a", lease_seconds=LEASE)
        assert lock.renew("a", 1, lease_seconds=LEASE).holder == "a"
        raise ZeroDivisionError

    assert (lock.look().holder, lock.look().epoch) == ("a", 1)


@on(*SERVERS)
def test_who_stands_or_leads_needs_one_connection_until_it_is_closed(locks, monkeypatch) -> None:
    made = []
    real = connections.create_connection

    def create(self, alias):
        made.append(real(alias))
        return made[-1]

    monkeypatch.setattr(type(connections), "create_connection", create)
    lock = locks.make()
    for _ in range(3):
        epoch = lock.acquire("a", lease_seconds=LEASE).epoch
        lock.renew("a", epoch, lease_seconds=LEASE)
    lock.resign("a", epoch)

    assert len(made) == 1
    assert made[0].connection is not None
    lock.close()
    assert made[0].connection is None


@on("redis")
def test_a_redis_whose_answer_was_lost_is_asked_once_more(locks, monkeypatch) -> None:
    lock = locks.make()
    lock.look()
    link = type(lock._link)
    real = link.run
    lost = iter([True])

    def run(self, script, keys, arguments):
        answer = real(self, script, keys, arguments)
        if next(lost, False):
            raise redis.ConnectionError("reset by peer")
        return answer

    monkeypatch.setattr(link, "run", run)

    assert lock.acquire("a", lease_seconds=LEASE).epoch == 2


@on(*DATABASES)
@pytest.mark.parametrize("existing", [False, True])
def test_a_database_that_did_not_confirm_a_commit_is_asked_once_more(locks, monkeypatch, existing) -> None:
    lock = locks.make()
    if existing:
        lock.acquire("a", lease_seconds=LEASE)
    real = Statements.changes
    lost = iter([True])

    def changes(self, statement, *arguments):
        answer = real(self, statement, *arguments)
        if answer and next(lost, False):
            raise OperationalError("server closed the connection unexpectedly")
        return answer

    monkeypatch.setattr(Statements, "changes", changes)

    assert lock.acquire("a", lease_seconds=LEASE).epoch == 2 + existing
    assert next(lost, None) is None


@pytest.mark.parametrize("kind", ["redis", *SERVERS])
def test_a_store_that_falls_silent_or_is_gone_is_unavailable_soon(
    kind, request, tmp_path, django_db_blocker
) -> None:
    url = request.getfixturevalue("redis_url") if kind == "redis" else database_url(kind, request, tmp_path)
    parts = urlsplit(url)
    with (
        django_db_blocker.unblock(),
        tcp_proxy(str(parts.hostname), int(parts.port or 0)) as proxy,
    ):
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        behind = urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{proxy.port}"))
        if kind == "redis":
            _falls_silent(RedisLock(redis_app(behind)), proxy)
            return
        with lease_table("direct", url), database_alias_for("cut", database_from_url(behind)):
            _falls_silent(DatabaseLock("cut"), proxy)


def _falls_silent(lock, proxy) -> None:
    epoch = lock.acquire("a", lease_seconds=LEASE).epoch

    proxy.swallows = True
    for _ in range(2):  # With an open connection, and without one.
        with within(5), pytest.raises(LockUnavailable, match="cannot be used now"):
            lock.renew("a", epoch, lease_seconds=LEASE)
    with within(5), pytest.raises(LockUnavailable):
        lock.look()

    proxy.cut()
    assert lock.renew("a", epoch, lease_seconds=LEASE).holder == "a"
    proxy.cut()  # An open connection is gone: that is no outage.
    assert lock.renew("a", epoch, lease_seconds=LEASE).holder == "a"
    proxy.close()
    with within(3), pytest.raises(LockUnavailable, match="cannot be used now"):
        lock.resign("a", epoch)
    lock.close()


@on(*DATABASES)
def test_a_missing_table_is_said_so(locks) -> None:
    lock = locks.make()
    rename("beat", "beat_leader_lease", "beat_leader_lease_away")
    try:
        with pytest.raises(LockUnavailable, match=r"manage.py migrate beat_leader --database beat"):
            lock.acquire("a", lease_seconds=LEASE)
    finally:
        rename("beat", "beat_leader_lease_away", "beat_leader_lease")


def test_a_broker_that_is_no_redis_is_said_so() -> None:
    lock = RedisLock(Celery("other", broker="memory://", set_as_current=False))

    with pytest.raises(LockUnavailable, match=r"not Redis.*BEAT_LEADER"):
        lock.look()


@on(*REDIS)
def test_keys_carry_the_prefix_of_the_broker_and_ours(locks, redis_url) -> None:
    locks.make().acquire("a", lease_seconds=LEASE)

    prefix = b"shop:" * (locks.kind == "redis_prefixed") + b"hardening:beat:"
    with redis.Redis.from_url(redis_url) as client:
        assert sorted(client.keys("*hardening*")) == [prefix + b"epoch", prefix + b"lease"]
