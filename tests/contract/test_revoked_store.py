"""Every store of revokes keeps the same promises."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections, transaction

from hardening.revoked.models import Revoked
from hardening.revoked.rules import Revoke
from hardening.revoked.store import RevokedStore
from hardening.revoked.stores.database import DatabaseRevoked
from hardening.revoked.stores.memory import MemoryRevoked
from hardening.revoked.stores.redis import RedisRevoked
from hardening.store import StoreUnavailable
from tests.helpers.dlq_databases import database_url
from tests.helpers.mishaps import rename
from tests.helpers.state_stores import DATABASES, KINDS, redis_app, state_database
from tests.helpers.wait import wait_until

HOUR = 3600.0
MOST = 1000


@pytest.fixture(params=KINDS)
def store(request, tmp_path, django_db_blocker) -> Iterator[RevokedStore]:
    kind = request.param
    if kind in DATABASES:
        with (
            django_db_blocker.unblock(),
            state_database(kind, database_url(kind, request, tmp_path)) as alias,
        ):
            Revoked.objects.using(alias).all().delete()
            yield DatabaseRevoked(alias)
    elif kind == "memory":
        yield MemoryRevoked()
    else:
        url = request.getfixturevalue("redis_url")
        options: dict[str, Any] = {"global_keyprefix": "shop:"} if kind == "redis_prefixed" else {}
        redis = RedisRevoked(url=url) if kind == "redis_url" else RedisRevoked(redis_app(url, **options))
        yield redis
        redis.close()


def ids(*names: str) -> list[Revoke]:
    return [Revoke(name) for name in names]


def revoked(store: RevokedStore, since: float | None = None) -> set[Revoke]:
    return {mark.revoke for mark in store.changes(since).revoked}


def test_it_fulfils_the_port(store) -> None:
    assert isinstance(store, RevokedStore)


def test_what_is_added_is_there_with_its_times(store) -> None:
    assert store.add(ids("a", "b"), ttl_seconds=HOUR, most=MOST) == 0

    found = store.changes()
    assert {mark.revoke for mark in found.revoked} == set(ids("a", "b"))
    assert found.forgotten == ()
    assert abs(found.now - time.time()) < 0.9
    for mark in found.revoked:
        assert 0 <= found.now - mark.at < 5
        assert mark.until - mark.at == pytest.approx(HOUR, abs=0.01)


def test_nothing_is_there_at_first_and_nothing_can_be_added(store) -> None:
    assert store.add([], ttl_seconds=HOUR, most=MOST) == 0
    assert store.forget([], ttl_seconds=HOUR) == ()
    assert store.changes().revoked == ()


def test_ids_and_stamps_compare_exactly(store) -> None:
    many = [
        *ids(
            "Task", "task", "task ", " task", "ta\x00sk", "täsk", "ta\u0308sk", "\ud800", "", "x" * 3000, "7"
        ),
        *(Revoke(value, header) for value in ("7", 7, "a") for header in ("h", "H", "")),
    ]

    store.add(many, ttl_seconds=HOUR, most=MOST)

    assert {mark.revoke.text for mark in store.changes().revoked} == {revoke.text for revoke in many}
    assert store.forget(ids("TASK", "tasK"), ttl_seconds=HOUR) == ()
    assert store.forget([*ids("Task")], ttl_seconds=HOUR) == tuple(ids("Task"))
    assert Revoke("task") in revoked(store)


def test_a_look_since_a_time_shows_only_what_is_new(store) -> None:
    store.add(ids("old"), ttl_seconds=HOUR, most=MOST)
    time.sleep(0.1)
    since = store.changes().now
    time.sleep(0.1)

    store.add(ids("new"), ttl_seconds=HOUR, most=MOST)

    assert revoked(store, since) == set(ids("new"))
    assert revoked(store) == set(ids("old", "new"))
    assert revoked(store, since + HOUR) == set()


def test_what_is_forgotten_is_told_and_can_be_revoked_again(store) -> None:
    store.add(ids("a", "b"), ttl_seconds=HOUR, most=MOST)

    assert store.forget(ids("a", "never"), ttl_seconds=HOUR) == tuple(ids("a"))
    found = store.changes(store.changes().now - 10)
    assert [mark.revoke for mark in found.revoked] == ids("b")
    assert set(found.forgotten) == set(ids("a", "never"))
    assert store.forget(ids("a"), ttl_seconds=HOUR) == ()

    store.add(ids("a"), ttl_seconds=HOUR, most=MOST)
    assert revoked(store) == set(ids("a", "b"))
    assert set(store.changes().forgotten) == set(ids("never"))


def test_after_its_time_a_revoke_is_forgotten(store) -> None:
    store.add(ids("short"), ttl_seconds=0.05, most=MOST)
    store.add(ids("long"), ttl_seconds=HOUR, most=MOST)

    wait_until(lambda: revoked(store) == set(ids("long")))
    assert revoked(store, 0.0) == set(ids("long"))
    assert store.forget(ids("short"), ttl_seconds=0.05) == ()


def test_revoking_again_begins_the_time_anew(store) -> None:
    store.add(ids("a"), ttl_seconds=0.5, most=MOST)
    before = store.changes().revoked[0].until

    store.add(ids("a"), ttl_seconds=HOUR, most=MOST)

    (mark,) = store.changes().revoked
    assert mark.until > before + HOUR / 2


def test_at_the_bound_those_that_expire_first_go_and_are_counted(store) -> None:
    store.add(ids("first"), ttl_seconds=60, most=3)
    store.add(ids("second"), ttl_seconds=90, most=3)
    store.add(ids("third"), ttl_seconds=HOUR, most=3)

    assert store.add(ids("fourth", "fifth"), ttl_seconds=HOUR, most=3) == 2
    assert revoked(store) == set(ids("third", "fourth", "fifth"))


def test_what_has_expired_or_was_forgotten_is_not_counted_at_the_bound(store) -> None:
    store.add(ids("over"), ttl_seconds=0.05, most=2)
    store.add(ids("back"), ttl_seconds=HOUR, most=2)
    store.forget(ids("back"), ttl_seconds=60)
    wait_until(lambda: revoked(store) == set())

    assert store.add(ids("a", "b"), ttl_seconds=HOUR, most=2) == 0
    assert revoked(store) == set(ids("a", "b"))


def test_thousands_at_once(store) -> None:
    many = ids(*(f"task-{number}" for number in range(2500)))

    assert store.add(many, ttl_seconds=HOUR, most=2000) == 500
    assert len(store.changes().revoked) == 2000


def test_saying_it_twice_is_saying_it_once(store) -> None:
    for _ in range(2):
        assert store.add(ids("a", "a", "b"), ttl_seconds=HOUR, most=2) == 0

    assert revoked(store) == set(ids("a", "b"))


def test_of_many_threads_that_write_the_same_none_is_lost(store) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(6)

    def run(number: int) -> None:
        try:
            start.wait()
            for turn in range(4):
                shared = [f"shared-{turn}-{n}" for n in range(10)]
                store.add(ids(*reversed(shared), f"own-{number}-{turn}"), ttl_seconds=HOUR, most=MOST)
        except BaseException as exc:
            errors.append(exc)
        finally:
            if isinstance(store, DatabaseRevoked):
                store.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert len(revoked(store)) == 40 + 24


@pytest.mark.parametrize("store", DATABASES[1:], indirect=True)
def test_a_rollback_of_the_callers_takes_no_revoke_along(store) -> None:
    alias = store._alias()
    with transaction.atomic(using=alias):
        store.add(ids("a"), ttl_seconds=HOUR, most=MOST)
        transaction.set_rollback(True, using=alias)

    assert revoked(store) == set(ids("a"))


@pytest.mark.parametrize("store", DATABASES, indirect=True)
def test_a_missing_table_is_an_error_that_says_what_to_do(store) -> None:
    rename(store._alias(), "hardening_revoked", "hardening_gone")
    try:
        with pytest.raises(StoreUnavailable, match=f"migrate hardening --database {store._alias()}"):
            store.add(ids("a"), ttl_seconds=HOUR, most=MOST)
        with pytest.raises(StoreUnavailable, match="migrate hardening"):
            store.changes()
    finally:
        rename(store._alias(), "hardening_gone", "hardening_revoked")


@pytest.mark.parametrize("store", DATABASES, indirect=True)
def test_no_connection_is_left_open(store) -> None:
    connections[store._alias()].close()

    store.add(ids("a"), ttl_seconds=HOUR, most=MOST)
    store.changes()

    assert connections[store._alias()].connection is None


def test_a_redis_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match="keeps what is revoked"):
        RedisRevoked(url="redis://127.0.0.1:1/0").add(ids("a"), ttl_seconds=HOUR, most=MOST)
