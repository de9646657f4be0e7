"""Every store of shared state keeps the same promises."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from celery import Celery
from django.db import DatabaseError, OperationalError, connections, transaction

from hardening.models import State
from hardening.store import ABSENT, LARGEST_BYTES, StateStore, StoreBusy, StoreUnavailable, update
from hardening.stores import statements as statements_module
from hardening.stores.database import DatabaseStore
from hardening.stores.memory import MemoryStore
from hardening.stores.redis import RedisStore
from hardening.testing.servers import (
    LocalServer,
    MariaDBServer,
    PostgresServer,
    RedisSentinel,
    RedisServer,
    ServerMissing,
)
from tests.conftest import absent
from tests.helpers.databases import database_from_url
from tests.helpers.dlq_databases import database_alias_for
from tests.helpers.mishaps import end_session, frozen, rename, within
from tests.helpers.state_stores import DATABASES, KINDS, REDIS, redis_app, state_database, state_store
from tests.helpers.wait import wait_until

HOUR = 3600.0
SERVERS = ("postgres", "mariadb")


@pytest.fixture(params=KINDS)
def store(request, tmp_path, django_db_blocker) -> Iterator[StateStore]:
    with django_db_blocker.unblock(), state_store(request.param, request, tmp_path) as made:
        yield made


on = lambda *kinds: pytest.mark.parametrize("store", kinds, indirect=True)  # noqa: E731


def test_it_fulfils_the_port(store) -> None:
    assert isinstance(store, StateStore)


def test_a_document_comes_back_as_it_was_put(store) -> None:
    value = {"text": "a\x00b\ud800 \U0001f4a5 %s {}", "number": 1.5, "list": [1, None, True], "map": {"": {}}}

    assert store.swap("k", version=ABSENT, value=value, ttl_seconds=HOUR)

    entry = store.read("k")
    assert entry.value == value
    assert entry.version != ABSENT


def test_what_was_never_put_is_absent(store) -> None:
    entry = store.read("never")

    assert (entry.value, entry.version) == (None, ABSENT)


def test_a_swap_with_a_stale_version_changes_nothing(store) -> None:
    store.swap("k", version=ABSENT, value={"n": 1}, ttl_seconds=HOUR)
    stale = store.read("k").version
    assert store.swap("k", version=stale, value={"n": 2}, ttl_seconds=HOUR)

    assert not store.swap("k", version=stale, value={"n": 3}, ttl_seconds=HOUR)
    assert not store.swap("k", version=stale, value=None, ttl_seconds=HOUR)
    assert not store.swap("k", version=ABSENT, value={"n": 3}, ttl_seconds=HOUR)
    assert not store.swap("k", version=ABSENT, value=None, ttl_seconds=HOUR)
    assert not store.swap("other", version=stale, value={"n": 3}, ttl_seconds=HOUR)

    assert store.read("k").value == {"n": 2}
    assert store.read("other").version == ABSENT


def test_a_deleted_document_is_absent_and_its_versions_never_come_back(store) -> None:
    store.swap("k", version=ABSENT, value={"n": 1}, ttl_seconds=HOUR)
    first = store.read("k").version
    assert store.swap("k", version=first, value=None, ttl_seconds=HOUR)
    assert store.read("k").version == ABSENT
    assert store.swap("k", version=ABSENT, value=None, ttl_seconds=HOUR)

    assert store.swap("k", version=ABSENT, value={"n": 1}, ttl_seconds=HOUR)

    assert not store.swap("k", version=first, value={"n": 9}, ttl_seconds=HOUR)
    assert store.read("k").value == {"n": 1}


def test_a_document_is_absent_once_its_time_is_over_and_can_be_made_anew(store) -> None:
    store.swap("k", version=ABSENT, value={"n": 1}, ttl_seconds=0.05)
    before = store.read("k").version
    store.swap("long", version=ABSENT, value={"n": 1}, ttl_seconds=HOUR)

    wait_until(lambda: store.read("k").version == ABSENT)

    assert before == ABSENT or not store.swap("k", version=before, value={"n": 2}, ttl_seconds=HOUR)
    assert store.swap("k", version=ABSENT, value={"n": 3}, ttl_seconds=HOUR)
    assert store.read("k").value == {"n": 3}
    assert store.read("long").value == {"n": 1}


def test_each_swap_begins_the_time_to_live_anew(store) -> None:
    store.swap("k", version=ABSENT, value={"n": 1}, ttl_seconds=HOUR)

    store.swap("k", version=store.read("k").version, value={"n": 2}, ttl_seconds=0.05)

    wait_until(lambda: store.read("k").version == ABSENT)


def test_its_clock_goes_on_and_is_near_the_real_time(store) -> None:
    first = store.read("k").now

    # Finer than a second, or delays of a second would be wrong by half.
    later = wait_until(lambda: (now := store.read("k").now) > first and now)

    assert later - first < 0.9
    assert abs(first - time.time()) < 0.9


@on(*SERVERS)
def test_no_time_zone_moves_its_clock(store, request) -> None:
    alias = store._alias()
    zone = "SET TIME ZONE" if connections[alias].vendor == "postgresql" else "SET time_zone ="
    connections[alias].cursor().execute(f"{zone} '-07:30'")

    store.swap("k", version=ABSENT, value={}, ttl_seconds=HOUR)

    assert abs(store.read("k").now - time.time()) < 0.9
    assert abs(State.objects.using(alias).get().expires_at - time.time() - HOUR) < 0.9


def test_keys_that_differ_in_any_way_are_different_documents(store) -> None:
    keys = [
        "Task",
        "task",
        "task ",
        "ta\x00sk",
        "täsk",
        "task~",
        "\ud800",
        "x" * 300 + "1",
        "x" * 300 + "2",
        "",
    ]
    for number, key in enumerate(keys):
        assert store.swap(key, version=ABSENT, value={"n": number}, ttl_seconds=HOUR)

    assert [store.read(key).value for key in keys] == [{"n": number} for number in range(len(keys))]


@pytest.mark.parametrize(
    "value",
    [[1], "text", {"a": object()}, {"a": float("nan")}, {"a": "x" * LARGEST_BYTES}],
    ids=["list", "text", "object", "nan", "large"],
)
def test_what_is_no_small_json_object_is_refused(store, value) -> None:
    with pytest.raises(ValueError, match=r"a document|JSON compliant"):
        store.swap("k", version=ABSENT, value=value, ttl_seconds=HOUR)

    assert store.read("k").version == ABSENT


def test_the_largest_document_is_kept(store) -> None:
    value = {"a": "x" * (LARGEST_BYTES - len('{"a":""}'))}

    assert store.swap("k", version=ABSENT, value=value, ttl_seconds=1e300)

    assert store.read("k").value == value


@pytest.mark.parametrize("ttl", [0, -1, float("inf"), float("nan")])
def test_a_time_to_live_that_is_none_is_refused(store, ttl) -> None:
    with pytest.raises(ValueError, match="time to live"):
        store.swap("k", version=ABSENT, value={}, ttl_seconds=ttl)


def test_of_many_threads_that_update_a_document_none_is_lost(store) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(8)

    def run() -> None:
        try:
            start.wait()
            count(store, 10)
        except BaseException as exc:
            errors.append(exc)
        finally:
            if isinstance(store, DatabaseStore):
                store.close()

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert store.read("counter").value == {"n": 80}


@on(*REDIS, *SERVERS)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_of_many_processes_that_update_a_document_none_is_lost(store) -> None:
    store.read("counter")
    store.close()

    def run() -> None:
        if isinstance(store, DatabaseStore):  # Else PyMySQL spends most of the time on connecting.
            connections[store._alias()].ensure_connection()
        count(store, 25)

    children = [fork(run) for _ in range(6)]

    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
    assert store.read("counter").value == {"n": 150}


@on(*REDIS)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_with_an_open_connection_leaves_both_sides_their_own(store) -> None:
    count(store, 1)

    children = [fork(lambda: count(store, 25)) for _ in range(2)]
    count(store, 25)

    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert store.read("counter").value == {"n": 76}


def test_close_may_come_at_any_time_and_use_goes_on(store) -> None:
    store.close()
    count(store, 1)
    store.close()
    store.close()

    count(store, 1)

    assert store.read("counter").value == {"n": 2}


@on(*REDIS)
def test_close_leaves_no_connection_to_redis(store, redis_url) -> None:
    with redis.Redis.from_url(redis_url) as other:
        before = len(other.client_list())
        count(store, 3)
        assert len(other.client_list()) == before + 1

        store.close()

        wait_until(lambda: len(other.client_list()) == before)


@on(*DATABASES)
def test_close_leaves_no_connection_to_the_database(store) -> None:
    count(store, 3)

    store.close()

    assert connections[store._alias()].connection is None


@on("redis", "redis_prefixed")
def test_keys_carry_the_prefix_of_the_broker_and_ours(store, redis_url) -> None:
    count(store, 1)

    with redis.Redis.from_url(redis_url) as other:
        assert other.keys("*hardening*") == [
            b"shop:" * (store._app.conf.broker_transport_options != {}) + (b"hardening:state:counter")
        ]
        assert other.ttl(other.keys("*hardening*")[0]) > HOUR - 60


@on(*REDIS, *DATABASES)
def test_what_another_put_in_its_place_reads_as_no_document_and_can_be_swapped(store, redis_url) -> None:
    count(store, 1)
    if isinstance(store, RedisStore):
        with redis.Redis.from_url(redis_url) as other:
            other.hset(other.keys("*counter")[0], "value", b"\xff[")
    else:
        State.objects.using(store._alias()).update(value="[1]")
    assert store.read("counter").value is None

    count(store, 1)

    assert store.read("counter").value == {"n": 1}


# A store that is down.


@on("redis", "redis_url")
def test_a_swap_whose_answer_was_lost_is_done_once(store, monkeypatch) -> None:
    count(store, 1)
    link = type(store._link)
    real = link.swap
    lost = iter([True])

    def swap(self, *args):
        answer = real(self, *args)
        if next(lost, False):
            raise redis.ConnectionError("reset by peer")
        return answer

    monkeypatch.setattr(link, "swap", swap)

    count(store, 1)

    assert store.read("counter").value == {"n": 2}
    assert next(lost, None) is None


@on(*DATABASES)
@pytest.mark.parametrize("existing", [False, True])
def test_a_swap_whose_commit_was_not_confirmed_is_done_once(store, monkeypatch, existing) -> None:
    if existing:
        count(store, 1)
    real = statements_module.Statements.changes
    lost = iter([True])

    def changes(self, statement, *args):
        answer = real(self, statement, *args)
        if answer and next(lost, False):
            raise OperationalError("server closed the connection unexpectedly")
        return answer

    monkeypatch.setattr(statements_module.Statements, "changes", changes)

    count(store, 1)

    assert store.read("counter").value == {"n": 1 + existing}
    assert next(lost, None) is None


@pytest.mark.parametrize("by", ["app", "url"])
def test_a_redis_that_stops_is_unavailable_soon_and_used_again_when_it_is_back(make_redis, by) -> None:
    server = make_redis(append_only=True)
    store = RedisStore(redis_app(server.url)) if by == "app" else RedisStore(url=server.url)
    count(store, 1)

    server.stop()
    with within(3), pytest.raises(StoreUnavailable, match=r"Redis.*cannot be used now"):
        store.read("counter")
    with within(3), pytest.raises(StoreUnavailable):
        store.swap("counter", version=ABSENT, value={}, ttl_seconds=HOUR)
    server.start()

    count(store, 1)
    assert store.read("counter").value == {"n": 2}
    server.restart()
    count(store, 1)
    assert store.read("counter").value == {"n": 3}
    store.close()


@pytest.mark.parametrize("by", ["app", "url"])
def test_a_redis_that_hangs_is_unavailable_soon_for_one_and_for_many(make_redis, by) -> None:
    server = make_redis()
    store = RedisStore(redis_app(server.url)) if by == "app" else RedisStore(url=server.url)
    count(store, 1)
    errors: list[Exception] = []

    def ask() -> None:
        try:
            store.read("counter")
        except StoreUnavailable as exc:
            errors.append(exc)

    server.pause()
    try:
        for _ in range(2):  # With an open connection, and without one.
            threads = [threading.Thread(target=ask) for _ in range(60)]
            with within(8):
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
    finally:
        server.resume()

    assert len(errors) == 120
    wait_until(lambda: _answers(store))
    assert store.read("counter").value == {"n": 1}
    store.close()


def test_a_redis_that_takes_no_writes_is_unavailable(make_redis) -> None:
    server = make_redis(extra_args=("--min-replicas-to-write", "1"))
    store = RedisStore(url=server.url)

    with pytest.raises(StoreUnavailable, match="Redis"):
        count(store, 1)
    store.close()


def test_a_broker_that_is_no_redis_is_said_so() -> None:
    store = RedisStore(Celery("other", broker="memory://", set_as_current=False))

    with pytest.raises(StoreUnavailable, match=r"not Redis.*STORE"):
        store.read("k")


def test_a_broker_behind_sentinel_is_found_anew_after_a_failover(make_redis) -> None:
    primary: RedisServer = make_redis()
    replica: RedisServer = make_redis(replica_of=primary)
    try:
        sentinel = RedisSentinel(primary, down_after_ms=500)
    except ServerMissing as missing:
        absent(str(missing))
    with sentinel:
        wait_until(lambda: sentinel.replica_count() == 1, 20)
        store = RedisStore(redis_app(sentinel.url, master_name=sentinel.master_name))
        count(store, 1)

        primary.kill()
        wait_until(lambda: sentinel.master_port() == replica.port, 30)

        wait_until(lambda: _answers(store), 20)
        wait_until(lambda: _counts(store), 20)
        store.close()


@pytest.mark.parametrize(
    "url", ["postgresql://u@127.0.0.1:1/x", "mysql://u@127.0.0.1:1/x", "sqlite:////no/dir/x"]
)
def test_a_database_that_is_down_is_unavailable(url, django_db_blocker) -> None:
    if url.startswith("mysql"):
        import pymysql

        pymysql.version_info = (2, 2, 8, "final", 0)
    with django_db_blocker.unblock(), database_alias_for("down", database_from_url(url)):
        store = DatabaseStore("down")

        with within(3), pytest.raises(StoreUnavailable, match=r"'down'.*cannot be used now") as caught:
            store.read("k")
        with within(3), pytest.raises(StoreUnavailable, match="'down'"):
            store.swap("k", version=ABSENT, value={}, ttl_seconds=HOUR)

        assert isinstance(caught.value.__cause__, DatabaseError)


def test_an_alias_that_does_not_exist_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match="nowhere"):
        DatabaseStore("nowhere").read("k")


@on(*DATABASES)
def test_a_missing_table_is_unavailable_and_the_text_names_the_command(store) -> None:
    alias = store._alias()
    rename(alias, "hardening_state", "hardening_state_away")
    try:
        with pytest.raises(StoreUnavailable, match=rf"manage.py migrate hardening --database {alias}"):
            store.read("k")
        with pytest.raises(StoreUnavailable, match=r"manage.py migrate hardening"):
            store.swap("k", version=ABSENT, value={}, ttl_seconds=HOUR)
    finally:
        rename(alias, "hardening_state_away", "hardening_state")


def test_a_postgres_that_restarts_is_used_again(django_db_blocker) -> None:
    try:
        server = PostgresServer()
    except ServerMissing as missing:
        absent(str(missing))
    with server, django_db_blocker.unblock(), state_database("own", server.url) as alias:
        store = DatabaseStore(alias)
        count(store, 1)
        server.stop()
        with pytest.raises(StoreUnavailable):
            store.read("counter")
        server.start()
        count(store, 1)
        server.restart()

        count(store, 1)

        assert store.read("counter").value == {"n": 3}


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def database_server(request) -> Iterator[LocalServer]:
    try:
        server = PostgresServer() if request.param == "postgres" else MariaDBServer()
    except ServerMissing as missing:
        absent(str(missing))
    with server:
        yield server


@pytest.fixture
def database(database_server, django_db_blocker) -> Iterator[tuple[LocalServer, str]]:
    """A database server of our own and the alias of its empty table."""
    if isinstance(database_server, MariaDBServer):
        import pymysql

        pymysql.version_info = (2, 2, 8, "final", 0)
    with django_db_blocker.unblock(), state_database("own", database_server.url) as alias:
        yield database_server, alias


@pytest.mark.parametrize("opened", [True, False])
def test_a_database_that_hangs_is_unavailable_soon_and_used_again_when_it_goes_on(database, opened) -> None:
    server, alias = database
    store = DatabaseStore(alias)
    count(store, 1)
    connections[alias].ensure_connection()
    if not opened:
        store.close()

    with frozen(server):
        with within(5), pytest.raises(StoreUnavailable, match="cannot be used now: no answer in time"):
            store.read("counter")
        with within(5), pytest.raises(StoreUnavailable):
            store.swap("counter", version=ABSENT, value={}, ttl_seconds=HOUR)

    count(store, 1)
    assert store.read("counter").value == {"n": 2}


def test_a_database_that_hangs_does_not_hold_up_a_caller_in_a_transaction(database) -> None:
    server, alias = database
    store = DatabaseStore(alias)
    count(store, 1)
    with transaction.atomic(using=alias):
        State.objects.using(alias).create(key="the-tasks-own", value="{}", version=1, expires_at=1e12)

        with frozen(server), within(5), pytest.raises(StoreUnavailable):
            store.read("counter")

        assert State.objects.using(alias).filter(key="the-tasks-own").exists()


def test_a_statement_that_waits_for_a_lock_is_given_up_soon(database) -> None:
    _server, alias = database
    store = DatabaseStore(alias)
    count(store, 1)
    version = store.read("counter").version
    with transaction.atomic(using=alias):
        State.objects.using(alias).update(expires_at=1e12)
        with within(5), pytest.raises(StoreUnavailable):
            store.swap("counter", version=version, value={}, ttl_seconds=HOUR)


def test_a_connection_whose_health_would_have_to_be_checked_first_holds_nothing_up(database) -> None:
    server, alias = database
    store = DatabaseStore(alias)
    connections[alias].settings_dict["CONN_HEALTH_CHECKS"] = True
    connections[alias].ensure_connection()
    connections[alias].health_check_done = False  # type: ignore[attr-defined]

    with frozen(server), within(5), pytest.raises(StoreUnavailable):
        store.read("counter")


def test_the_time_outs_of_the_project_go_before_ours_and_its_own_connection_has_none_of_ours(
    database,
) -> None:
    server, alias = database
    connections[alias].settings_dict["OPTIONS"]["connect_timeout"] = 4
    connections[alias].close()

    with frozen(server):
        started = time.monotonic()
        with pytest.raises(StoreUnavailable):
            DatabaseStore(alias).read("counter")
        took = time.monotonic() - started

    assert connections[alias].settings_dict["OPTIONS"].keys() - {"charset"} == {"connect_timeout"}
    assert took > 3 or connections[alias].vendor == "mysql"  # Its server's silence is a read.


@on(*SERVERS)
def test_the_callers_connection_is_used_where_it_is_open(store, monkeypatch) -> None:
    connections[store._alias()].ensure_connection()
    monkeypatch.setattr(type(connections), "create_connection", None)

    count(store, 1)


@on(*DATABASES)
def test_a_call_leaves_no_thread_and_no_open_file(store) -> None:
    count(store, 1)
    connections[store._alias()].ensure_connection()
    held = lambda: (threading.active_count(), len(list(Path("/proc/self/fd").iterdir())))  # noqa: E731
    before = held()

    count(store, 3)

    assert held() == before


# Inside a task's own transaction.


@on(*SERVERS)
def test_state_written_in_a_transaction_that_is_rolled_back_stays(store) -> None:
    alias = store._alias()
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias):
        State.objects.using(alias).create(key="the-tasks-own", value="{}", version=1, expires_at=1e12)
        before = connections[alias]
        count(store, 2)
        assert connections[alias] is before
        raise ZeroDivisionError

    assert store.read("counter").value == {"n": 2}
    assert store.read("the-tasks-own").version == ABSENT


@on("sqlite")  # One writer: the caller has only read.
def test_state_written_to_a_file_in_a_transaction_that_is_rolled_back_stays(store) -> None:
    alias = store._alias()
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias):
        list(State.objects.using(alias).all())
        count(store, 2)
        raise ZeroDivisionError

    assert store.read("counter").value == {"n": 2}


@on("sqlite")
def test_a_caller_that_holds_the_one_writer_of_a_file_is_told_that_the_store_is_busy(store) -> None:
    alias = store._alias()
    connections[alias].settings_dict["OPTIONS"]["timeout"] = 0.2
    with transaction.atomic(using=alias):
        State.objects.using(alias).create(key="the-tasks-own", value="{}", version=1, expires_at=1e12)
        with pytest.raises(StoreBusy, match="locked"):
            count(store, 1)

    assert store.read("the-tasks-own").value == {}


@on(*SERVERS)
def test_a_lost_race_leaves_the_callers_transaction_usable_and_a_broken_one_does_not_matter(store) -> None:
    alias = store._alias()
    count(store, 1)
    with transaction.atomic(using=alias):
        assert not store.swap("counter", version=ABSENT, value={}, ttl_seconds=HOUR)
        State.objects.using(alias).create(key="the-tasks-own", value="{}", version=1, expires_at=1e12)
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias):
        with pytest.raises(DatabaseError), transaction.atomic(using=alias, savepoint=False):
            connections[alias].cursor().execute("SELECT * FROM no_such_table")
        count(store, 1)
        raise ZeroDivisionError

    assert store.read("the-tasks-own").value == {}
    assert store.read("counter").value == {"n": 2}


@on(*SERVERS)
def test_the_snapshot_of_the_callers_transaction_hides_nothing(store) -> None:
    alias = store._alias()
    count(store, 1)
    with transaction.atomic(using=alias):
        connections[alias].cursor().execute("SELECT * FROM hardening_state")
        other = threading.Thread(target=count_and_close, args=(store,))
        other.start()
        other.join()

        assert store.read("counter").value == {"n": 2}
        count(store, 1)

    assert store.read("counter").value == {"n": 3}


@pytest.mark.django_db
def test_in_a_database_in_memory_a_lost_race_does_not_break_the_callers_transaction() -> None:
    store = DatabaseStore()
    count(store, 1)

    assert not store.swap("counter", version=ABSENT, value={}, ttl_seconds=HOUR)

    count(store, 1)
    assert store.read("counter").value == {"n": 2}


@on(*SERVERS)
def test_a_connection_that_the_server_closed_is_replaced_without_an_error(store) -> None:
    count(store, 1)
    end_session(store._alias())

    count(store, 1)

    assert store.read("counter").value == {"n": 2}


@on(*DATABASES)
def test_rows_whose_time_is_over_are_removed_as_new_ones_come(store) -> None:
    rows = State.objects.using(store._alias())
    rows.bulk_create(State(key=f"old-{n}", value="{}", version=1, expires_at=1.0 + n) for n in range(15))

    store.swap("new-1", version=ABSENT, value={}, ttl_seconds=HOUR)
    assert rows.count() == 6
    store.swap("new-2", version=ABSENT, value={}, ttl_seconds=HOUR)

    assert sorted(rows.values_list("key", flat=True)) == ["new-1", "new-2"]


# One process with very many greenlets.

GREENLETS = """
import gevent.monkey; gevent.monkey.patch_all()
import sys, gevent
from celery import Celery
from hardening.store import update
from hardening.stores.redis import RedisStore
store = RedisStore(Celery("g", broker=sys.argv[1], set_as_current=False))
def add(value, now):
    return {"n": (value or {"n": 0})["n"] + 1}, None
def run(number):
    update(store, "counter", add, ttl_seconds=60)
    update(store, f"own-{number % 50}", add, ttl_seconds=60)
gevent.joinall([gevent.spawn(run, number) for number in range(400)], raise_error=True)
import redis
print(store.read("counter").value["n"], len(redis.Redis.from_url(sys.argv[1]).client_list()))
"""


def test_hundreds_of_greenlets_share_few_connections_and_lose_nothing(redis_url) -> None:
    pytest.importorskip("gevent")

    done = subprocess.run(
        [sys.executable, "-c", GREENLETS, redis_url], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    counted, clients = map(int, done.stdout.split())
    assert counted == 400
    assert clients <= 16 + 1


HANGING = """
import gevent.monkey; gevent.monkey.patch_all()
import os, signal, sys, time, gevent
from django.conf import settings
settings.configure(DATABASES={"default": eval(sys.argv[1])}, INSTALLED_APPS=["hardening"])
import django; django.setup()
from django.db import connection
from hardening.store import StoreUnavailable
from hardening.stores.database import DatabaseStore
store = DatabaseStore()
connection.ensure_connection()
store.read("k")
print("ready", flush=True)
sys.stdin.readline()
beats = []
def beat():
    while True:
        beats.append(1)
        gevent.sleep(0.05)
beating = gevent.spawn(beat)
def ask():
    try:
        store.read("k")
    except StoreUnavailable:
        return 1
started = time.monotonic()
refused = ask() + sum(each.get() for each in [gevent.spawn(ask) for _ in range(20)])
print(refused, len(beats), time.monotonic() - started)
"""


def test_a_database_that_hangs_holds_no_greenlet_up_for_long_and_no_other_at_all(database) -> None:
    pytest.importorskip("gevent")
    server, alias = database
    entry = {
        name: connections[alias].settings_dict[name] for name in ("ENGINE", "NAME", "USER", "HOST", "PORT")
    }
    mysql = "import pymysql; pymysql.version_info = (2, 2, 8, 'final', 0); pymysql.install_as_MySQLdb()\n"
    program = HANGING.replace("import os,", (mysql if "mysql" in entry["ENGINE"] else "") + "import os,")
    with subprocess.Popen(
        [sys.executable, "-c", program, repr(entry)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with frozen(server):
            told, _ = child.communicate("go on\n", timeout=60)

    refused, beats, seconds = map(float, told.split())
    assert refused == 21
    assert seconds < 8
    assert beats > 10 * seconds


def test_the_clock_of_the_store_in_memory_can_be_given() -> None:
    now = [100.0]
    store = MemoryStore(clock=lambda: now[0])
    store.swap("k", version=ABSENT, value={}, ttl_seconds=10)
    now[0] = 109.9
    assert store.read("k").value == {}

    now[0] = 110.0

    assert (store.read("k").version, store.read("k").now) == (ABSENT, 110.0)


def count(store: StateStore, times: int) -> None:
    """Add to the counter, each time by one."""
    for _ in range(times):
        update(
            store,
            "counter",
            lambda value, _now: ({"n": (value or {"n": 0})["n"] + 1}, None),
            ttl_seconds=HOUR,
        )


def count_and_close(store: StateStore) -> None:
    count(store, 1)
    store.close()


def fork(run: Callable[[], None]) -> int:
    """The id of a child that ends with status 0 when `run` returned."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run()
            status = 0
        finally:
            os._exit(status)
    return child


def _answers(store: StateStore) -> bool:
    try:
        store.read("counter")
    except StoreUnavailable:
        return False
    return True


def _counts(store: StateStore) -> bool:
    try:
        count(store, 1)
    except StoreUnavailable:
        return False
    return True
