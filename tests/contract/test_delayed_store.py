"""Every store of delayed tasks keeps the same promises."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis
from django.db import connections, transaction

from hardening.delayed import store as store_module
from hardening.delayed.entry import Delayed, Fate
from hardening.delayed.store import DelayedStore
from hardening.delayed.stores import database as database_module
from hardening.delayed.stores import redis as redis_module
from hardening.delayed.stores.database import DatabaseDelayedStore
from hardening.delayed.stores.redis import RedisDelayedStore
from hardening.models import DelayedTask
from hardening.store import StoreUnavailable
from tests.helpers.databases import database_from_url
from tests.helpers.delayed_stores import KINDS, QUEUE, REDIS, Harness, delayed_store, message
from tests.helpers.dlq_databases import database_alias_for
from tests.helpers.mishaps import end_session
from tests.helpers.state_stores import DATABASES, redis_app
from tests.helpers.wait import wait_until

HOUR = 3600.0
SERVERS = ("postgres", "mariadb")


@pytest.fixture(params=KINDS)
def kept(request, tmp_path, django_db_blocker) -> Iterator[Harness]:
    with django_db_blocker.unblock(), delayed_store(request.param, request, tmp_path) as harness:
        yield harness
        harness.store.close()


on = lambda *kinds: pytest.mark.parametrize("kept", kinds, indirect=True)  # noqa: E731


def entry(name: str = "one", *, due: float | None = None, **more: Any) -> Delayed:
    values: dict[str, Any] = {
        "id": uuid4().hex,
        "task_id": name,
        "task": "shop.charge",
        "queue": QUEUE,
        "due": time.time() + HOUR if due is None else due,
        "list_key": QUEUE,
        "message": message(name),
        **more,
    }
    return Delayed(**values)


def park_due(kept: Harness, *names: str, at: float | None = None) -> list[Delayed]:
    """Park messages that are due at once, as far as a store takes such."""
    due = time.time() + 0.3 if at is None else at
    entries = [entry(name, due=due) for name in names]
    for each in entries:
        assert kept.store.park(each) is Fate.PARKED
    wait_until(lambda: time.time() > due + 0.05)
    return entries


def test_it_fulfils_the_port(kept) -> None:
    assert isinstance(kept.store, DelayedStore)


def test_a_message_is_parked_once_whatever_happens_to_its_worker(kept) -> None:
    one = entry()

    assert kept.store.fate(one.id) is Fate.UNKNOWN
    assert kept.store.park(one) is Fate.PARKED
    assert kept.store.park(one) is Fate.PARKED

    assert kept.store.count() == 1
    assert kept.store.fate(one.id) is Fate.PARKED


def test_what_is_due_by_its_clock_is_not_parked(kept) -> None:
    late = entry(due=time.time() - 1)

    assert kept.store.park(late) is Fate.DUE

    assert kept.store.count() == 0
    assert kept.store.fate(late.id) is Fate.UNKNOWN


def test_nothing_is_released_before_it_is_due(kept) -> None:
    kept.store.park(entry(due=time.time() + 60))

    turn = kept.release()

    assert (turn.released, kept.released()) == (0, [])
    assert 55 < turn.next_in <= 60
    assert kept.store.count() == 1


def test_an_empty_store_has_nothing_to_say(kept) -> None:
    turn = kept.release()

    assert (turn.released, turn.postponed, turn.next_in) == (0, 0, None)


def test_what_is_due_is_released_once_and_the_store_remembers_it(kept) -> None:
    [one] = park_due(kept, "one")

    assert kept.release().released == 1
    assert kept.release().released == 0

    assert kept.released() == ["one"]
    assert kept.store.count() == 0
    assert kept.store.find("one") == []
    assert kept.store.fate(one.id) is Fate.RELEASED
    assert kept.store.park(one) is Fate.RELEASED
    assert kept.store.cancel(one.id, by="me") is None


def test_the_order_is_that_of_due_time_and_then_of_parking(kept) -> None:
    at = time.time() + 1.0
    names = [f"same-{number:03d}" for number in range(60)]
    for name in names:
        kept.store.park(entry(name, due=at))
    kept.store.park(entry("earlier", due=at - 0.1))
    kept.store.park(entry("later", due=at + 0.1))
    wait_until(lambda: time.time() > at + 0.2)

    while kept.release(limit=25).released:
        pass

    assert kept.released() == ["earlier", *names, "later"]


def test_a_turn_releases_no_more_than_it_is_asked_for_and_says_that_there_are_more(kept) -> None:
    park_due(kept, "a", "b", "c")

    turn = kept.release(limit=2)

    assert (turn.released, turn.next_in) == (2, 0.0)
    assert kept.released() == ["a", "b"]
    assert kept.release(limit=2).released == 1


def test_several_that_release_at_once_double_nothing(kept) -> None:
    names = [f"n{number:03d}" for number in range(120)]
    park_due(kept, *names, at=time.time() + 2.5)
    errors: list[BaseException] = []
    start = threading.Barrier(4)

    def run() -> None:
        try:
            start.wait()
            wait_until(lambda: kept.release(limit=10).released == 0 and kept.store.count() == 0, 20)
        except BaseException as exc:
            errors.append(exc)
        finally:
            if isinstance(kept.store, DatabaseDelayedStore):
                kept.store.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [error for error in errors if not isinstance(error, StoreUnavailable)] == []
    assert sorted(kept.released()) == names


def test_a_cancelled_message_is_never_released_and_who_did_it_is_on_record(kept) -> None:
    one, other = entry("one", attempt=3), entry("two")
    kept.store.park(one)
    kept.store.park(other)

    [gone, record] = kept.store.cancel(one.id, by="ann")

    assert (gone.task_id, gone.message) == ("one", one.message)
    assert (record.task_id, record.task, record.queue, record.by) == ("one", "shop.charge", QUEUE, "ann")
    assert abs(record.due - one.due) < 0.001
    assert abs(record.at - time.time()) < 2
    assert kept.store.cancellations(limit=10) == [record]
    assert kept.store.fate(one.id) is Fate.CANCELLED
    assert kept.store.park(one) is Fate.CANCELLED
    assert kept.store.cancel(one.id, by="bob") is None
    assert [each.task_id for each in kept.store.page(offset=0, limit=10)] == ["two"]


def test_the_latest_cancellations_come_first(kept) -> None:
    for name in ("a", "b", "c"):
        each = entry(name)
        kept.store.park(each)
        kept.store.cancel(each.id, by="ann")
        time.sleep(0.01)  # Their times must differ.

    assert [record.task_id for record in kept.store.cancellations(limit=2)] == ["c", "b"]


def test_what_was_never_parked_cannot_be_cancelled(kept) -> None:
    assert kept.store.cancel("no such id", by="ann") is None
    assert kept.store.cancellations(limit=10) == []


def test_of_a_cancellation_and_a_release_at_once_one_wins(kept) -> None:
    for _ in range(8):
        [one] = park_due(kept, uuid4().hex)
        start = threading.Barrier(2)
        cancelled: list[Any] = []

        def cancel(one=one, start=start, cancelled=cancelled) -> None:
            start.wait()
            try:
                cancelled.append(kept.store.cancel(one.id, by="ann"))
            except StoreUnavailable:  # SQLite has one writer.
                cancelled.append(None)
            finally:
                if isinstance(kept.store, DatabaseDelayedStore):
                    kept.store.close()

        thread = threading.Thread(target=cancel)
        thread.start()
        start.wait()
        wait_until(lambda: kept.release().released or kept.store.count() == 0)
        thread.join()

        assert (cancelled != [None]) != (one.task_id in kept.released())


def test_pages_are_in_the_order_of_release_and_carry_no_messages(kept) -> None:
    now = time.time()
    for number in range(25):
        kept.store.park(entry(f"t{number:02d}", due=now + HOUR + number // 5, attempt=2))

    pages = [kept.store.page(offset=offset, limit=10) for offset in (0, 10, 20, 30)]

    assert [each.task_id for page in pages for each in page] == [f"t{number:02d}" for number in range(25)]
    first = pages[0][0]
    assert (first.task, first.queue, first.attempt, first.message) == ("shop.charge", QUEUE, 2, "")
    assert abs(first.parked_at - now) < 2
    assert first.due == pytest.approx(now + HOUR, abs=0.001)


def test_it_finds_all_of_a_task_id_or_the_one_of_an_own_id(kept) -> None:
    one, again, other = entry("id-1"), entry("id-1"), entry("ID-1")
    for each in (one, again, other, entry("id-10")):
        kept.store.park(each)

    assert {each.id for each in kept.store.find("id-1")} == {one.id, again.id}
    assert [each.id for each in kept.store.find(other.id)] == [other.id]
    assert kept.store.find("id") == []
    assert kept.store.find("") == []


def test_texts_of_any_producer_are_kept(kept) -> None:
    odd = entry("t\u00e4sk \U0001f4a5 %s {} ' \" \\ <b>", task="\u00fc", queue="q\u00fc", list_key=f"{QUEUE}")
    kept.store.park(odd)

    [found] = kept.store.page(offset=0, limit=1)

    assert (found.task_id, found.task, found.queue) == (odd.task_id, odd.task, odd.queue)
    assert [each.id for each in kept.store.find(odd.task_id)] == [odd.id]


def test_a_time_that_no_calendar_has_is_kept(kept) -> None:
    far = entry(due=253_402_300_000.0)

    assert kept.store.park(far) is Fate.PARKED

    assert kept.store.page(offset=0, limit=1)[0].due == far.due


def test_close_may_come_at_any_time_and_use_goes_on(kept) -> None:
    kept.store.close()
    kept.store.park(entry())
    kept.store.close()
    kept.store.close()

    assert kept.store.count() == 1


@on("memory", *DATABASES)
def test_a_message_that_the_broker_refuses_is_kept_and_holds_up_no_other(kept, monkeypatch) -> None:
    [one, _] = park_due(kept, "one", "two")
    kept.refused = {one.id}

    turn = kept.release()

    assert (turn.released, turn.postponed, kept.released()) == (1, 1, ["two"])
    assert kept.store.fate(one.id) is Fate.PARKED
    assert kept.release().released == 0
    later = park_due(kept, "three")
    assert kept.release().released == len(later)


@on("memory", *DATABASES)
def test_a_broker_that_is_down_leaves_every_message_in_the_store(kept) -> None:
    park_due(kept, "one", "two")

    def down(entries):
        raise ConnectionError("no broker")

    with pytest.raises(ConnectionError):
        kept.store.release(down, limit=10)

    assert kept.store.count() == 2


@on(*DATABASES)
def test_the_claim_of_a_worker_that_died_ends_and_the_message_is_sent_then(kept, monkeypatch) -> None:
    monkeypatch.setattr(database_module, "CLAIM_SECONDS", 3.0)
    [one] = park_due(kept, "one")

    class Died(BaseException):
        pass

    def die(entries):
        raise Died

    monkeypatch.setattr(DatabaseDelayedStore, "_settle", lambda *args: None)
    with pytest.raises(Died):
        kept.store.release(die, limit=10)
    monkeypatch.undo()

    assert kept.release().released == 0
    assert kept.store.cancel(one.id, by="ann") is None
    wait_until(lambda: kept.release().released == 1, 10)
    assert kept.released() == ["one"]


@on(*DATABASES)
def test_what_went_is_forgotten_in_the_end_and_the_table_is_bounded(kept, monkeypatch) -> None:
    monkeypatch.setattr(database_module, "RELEASED_SECONDS", 0.2)
    [one] = park_due(kept, "one")
    kept.release()
    wait_until(lambda: kept.store.fate(one.id) is Fate.UNKNOWN)

    park_due(kept, "two")
    kept.release()

    wait_until(lambda: DelayedTask.objects.using(kept.store._alias()).filter(key=one.id).count() == 0)
    again = entry(id=one.id)
    assert kept.store.park(again) is Fate.PARKED


@on(*DATABASES)
def test_parking_anew_over_what_is_old_is_one_row(kept, monkeypatch) -> None:
    monkeypatch.setattr(database_module, "RELEASED_SECONDS", 0.2)
    [one] = park_due(kept, "one")
    kept.release()
    wait_until(lambda: kept.store.fate(one.id) is Fate.UNKNOWN)

    assert kept.store.park(entry(id=one.id)) is Fate.PARKED

    assert kept.store.count() == 1


@on(*SERVERS)
def test_the_callers_transaction_does_not_take_along_what_is_parked(kept) -> None:
    alias, one = kept.store._alias(), entry()

    with pytest.raises(RuntimeError), transaction.atomic(using=alias):
        DelayedTask.objects.using(alias).count()
        assert kept.store.park(one) is Fate.PARKED
        raise RuntimeError

    assert kept.store.fate(one.id) is Fate.PARKED


@on(*DATABASES)
def test_close_leaves_no_connection_to_the_database(kept) -> None:
    kept.store.park(entry())

    kept.store.close()

    assert connections[kept.store._alias()].connection is None


@on(*SERVERS)
def test_a_worker_opens_one_connection_for_a_row_of_calls_and_none_stays_open(kept, monkeypatch) -> None:
    kept.store.close()
    made: list[Any] = []
    real = type(connections).create_connection

    def counting(self: Any, alias: str) -> Any:
        made.append(real(self, alias))
        return made[-1]

    monkeypatch.setattr(type(connections), "create_connection", counting)
    kept.store.begin()
    for _ in range(5):
        kept.store.park(entry())
    kept.release()
    assert len(made) == 1
    assert made[0].connection is not None

    kept.store.pause()
    assert made[0].connection is None
    assert kept.store.count() == 5
    assert len(made) == 2


@on(*SERVERS)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_finds_no_connection_open(kept) -> None:
    kept.store.begin()
    kept.store.park(entry())
    child = os.fork()
    if not child:
        try:
            kept.store.park(entry())
        finally:
            os._exit(0 if kept.store._kept._of_thread.__dict__ else 1)
    os.waitpid(child, 0)

    kept.store.park(entry())

    assert kept.store.count() == 3


@on("postgres")
def test_a_connection_that_was_ended_is_opened_anew(kept) -> None:
    kept.store.begin()
    kept.store.park(entry())
    alias = kept.store._alias()
    with kept.store._kept.in_place(alias):
        end_session(alias)

    kept.store.park(entry())
    kept.store.park(entry())

    assert kept.store.count() == 3


# Redis.


@on(*REDIS)
def test_keys_carry_the_prefix_of_the_broker_and_ours(kept) -> None:
    kept.store.park(entry())

    names = {key.decode() for key in kept.client.keys("*")}
    assert names == {
        f"{kept.prefix}hardening:delayed:{name}" for name in ("due", "facts", "messages", "tasks", "number")
    }


@on(*REDIS)
def test_a_message_goes_to_the_very_list_that_it_came_from(kept) -> None:
    kept.store.park(entry(list_key="shop\x06\x163", due=time.time() + 0.2))

    wait_until(lambda: kept.release().released)

    assert kept.client.llen(f"{kept.prefix}shop\x06\x163") == 1


@on(*REDIS)
def test_nothing_but_the_memory_of_it_is_left_of_a_released_message(kept) -> None:
    park_due(kept, "one")
    kept.release()

    names = {key.decode().rpartition(":")[2] for key in kept.client.keys("*delayed*")}

    assert names == {"released", "number"}


@on("redis")
def test_a_list_that_takes_nothing_holds_up_no_other(kept) -> None:
    kept.client.set("broken", "no list")
    kept.store.park(entry("one", list_key="broken", due=time.time() + 0.2))
    park_due(kept, "two")

    turn = kept.release()

    assert (turn.released, turn.postponed, kept.released()) == (1, 1, ["two"])
    assert kept.store.count() == 1


@on("redis")
def test_what_went_is_bounded(kept, monkeypatch) -> None:
    monkeypatch.setattr(redis_module, "MOST_RECORDS", 3)
    ids = [each.id for each in park_due(kept, "a", "b", "c", "d", "e")]
    kept.release()
    assert kept.client.zcard("hardening:delayed:released") == 3
    assert [kept.store.fate(each) for each in ids].count(Fate.UNKNOWN) == 2

    for name in "fghij":
        each = entry(name)
        kept.store.park(each)
        kept.store.cancel(each.id, by="ann")
    assert kept.client.zcard("hardening:delayed:cancelled") == 3
    assert kept.client.hlen("hardening:delayed:records") == 3


def test_a_full_redis_keeps_what_it_has_and_releases_it_when_there_is_room(make_redis) -> None:
    server = make_redis()
    store = RedisDelayedStore(redis_app(server.url))
    with redis.Redis.from_url(server.url) as client:
        kept = Harness(store, client)
        one = park_due(kept, "one", "two")[0]
        client.config_set("maxmemory", 1)

        with pytest.raises(StoreUnavailable):
            store.park(entry())
        with pytest.raises(StoreUnavailable):
            kept.release()
        assert store.fate(one.id) is Fate.PARKED
        assert store.count() == 2

        client.config_set("maxmemory", 0)
        assert kept.release().released == 2
        assert kept.released() == ["one", "two"]
    store.close()


def test_a_redis_that_stops_is_unavailable_soon(make_redis) -> None:
    server = make_redis(append_only=True)
    store = RedisDelayedStore(redis_app(server.url))
    one = entry()
    store.park(one)

    server.stop()
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match="delayed tasks"):
        store.park(entry())
    assert time.monotonic() - begun < 3
    server.start()

    assert store.fate(one.id) is Fate.PARKED
    store.close()


@on("redis")
@pytest.mark.parametrize("call", ["park", "cancel"])
def test_a_call_whose_answer_was_lost_is_done_once(kept, monkeypatch, call) -> None:
    one = entry()
    kept.store.park(entry("other"))
    if call == "cancel":
        kept.store.park(one)
    link = type(kept.store._link)
    real, lost = getattr(link, call), iter([True])

    def lossy(self, *args):
        answer = real(self, *args)
        if next(lost, False):
            raise redis.ConnectionError("reset by peer")
        return answer

    monkeypatch.setattr(link, call, lossy)

    if call == "park":
        assert kept.store.park(one) is Fate.PARKED
        assert kept.store.count() == 2
    else:
        [_, record] = kept.store.cancel(one.id, by="ann")
        assert kept.store.cancellations(limit=5) == [record]
    assert next(lost, None) is None


@pytest.mark.parametrize("url", ["postgresql://u@127.0.0.1:1/x", "sqlite:////no/dir/x"])
def test_a_database_that_is_down_is_unavailable(url, django_db_blocker) -> None:
    with (
        django_db_blocker.unblock(),
        database_alias_for("down", database_from_url(url)),
        pytest.raises(StoreUnavailable, match=r"'down' keeps the delayed tasks"),
    ):
        DatabaseDelayedStore("down").park(entry())


def test_a_missing_table_is_said_with_its_remedy(tmp_path, django_db_blocker) -> None:
    url = f"sqlite:///{tmp_path / 'empty.sqlite3'}"
    with (
        django_db_blocker.unblock(),
        database_alias_for("bare", database_from_url(url)),
        pytest.raises(StoreUnavailable, match=r"migrate hardening --database bare"),
    ):
        DatabaseDelayedStore("bare").count()


def test_the_times_fit_together() -> None:
    assert store_module.POSTPONED_SECONDS < store_module.CLAIM_SECONDS < store_module.RELEASED_SECONDS
