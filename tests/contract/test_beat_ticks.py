"""Every tick store keeps the promises of its port."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from django.db import connections, transaction

from beat_leader.models import TickRow
from beat_leader.stores.database import link
from beat_leader.stores.database import ticks as in_database
from beat_leader.ticks import (
    Cursor,
    Decision,
    OldEpoch,
    Outcome,
    State,
    TickStore,
    TicksUnavailable,
    task_id_for,
)
from hardening.core import statements
from hardening.testing.servers import PostgresServer, ServerMissing
from tests.conftest import absent
from tests.helpers.beat_stores import (
    DATABASES,
    KINDS,
    Stores,
    beat_database,
    beat_stores,
    of_database,
    of_redis,
)
from tests.helpers.mishaps import end_session, rename, within
from tests.helpers.wait import wait_until

T0 = 1_800_000_000_000
ODD = ("Report", "report", "report ", "a|1|2", "\u00e9\u0301\U0001f4a5", "nul\x00\ud800 \\u0041 %s")


@pytest.fixture(params=KINDS)
def stores(request, tmp_path, django_db_blocker) -> Iterator[Stores]:
    with django_db_blocker.unblock(), beat_stores(request.param, request, tmp_path) as made:
        yield made


on = lambda *kinds: pytest.mark.parametrize("stores", kinds, indirect=True)  # noqa: E731


def due(schedule: str, at: int = 0, **given: Any) -> Decision:
    return Decision(schedule=schedule, due_ms=T0 + at, **{"state": State.DUE, "decided_ms": T0 + at, **given})


def skipped(schedule: str, at: int, **given: Any) -> Decision:
    return due(schedule, at, state=State.SKIPPED, why="misfire", **given)


def cursor(schedule: str, decided: int = -1, definition: str = "d", anchor: int = 0) -> Cursor:
    return Cursor(schedule=schedule, definition=definition, anchor_ms=T0 + anchor, decided_ms=T0 + decided)


def moments(ticks: list[Any]) -> list[tuple[str, int]]:
    return [(tick.schedule, tick.due_ms - T0) for tick in ticks]


def test_each_row_comes_back_as_it_was_written_whatever_the_name(stores) -> None:
    ticks: TickStore = stores.ticks
    assert isinstance(ticks, TickStore)
    ticks.put_cursors(1, [cursor(name, definition="x|y") for name in ODD])

    assert ticks.decide(1, [due(name, why="w") for name in ODD]) == [True] * len(ODD)
    ticks.sent(1, [(name, T0) for name in ODD], T0 + 70)
    ticks.decide(1, [skipped("report", 900, first_ms=T0 + 100, count=9)])

    assert ticks.cursors() == {
        **{name: cursor(name, 0, definition="x|y") for name in ODD},
        "report": cursor("report", 900, definition="x|y"),
    }
    last = ticks.last()
    assert set(last) == set(ODD)
    assert [
        (each.schedule, each.state, each.late_ms) for each in (ticks.last(ODD)[name] for name in ODD)
    ] == [
        (name, State.SKIPPED if name == "report" else State.SENT, None if name == "report" else 70)
        for name in ODD
    ]
    assert (last["report"].first_ms, last["report"].count, last["report"].why) == (T0 + 100, 9, "misfire")
    assert last["Report"].task_id == task_id_for("Report", T0)
    assert (last["Report"].epoch, last["Report"].decided_ms) == (1, T0)
    assert ticks.last(["never", ODD[4]]).keys() == {ODD[4]}
    assert ticks.counts(since_ms=T0 + 1) == {**dict.fromkeys(State, 0), State.SKIPPED: 1}
    assert ticks.counts(since_ms=T0)[State.SENT] == len(ODD)


def test_of_eight_leaders_that_decide_at_once_one_wins_each_due_time(stores) -> None:
    names = [f"s{number}" for number in range(4)]
    stores.ticks.put_cursors(1, [cursor(name) for name in names])
    won: list[tuple[int, str, int]] = []
    refused: list[OldEpoch] = []
    ready = threading.Barrier(8)

    def lead(epoch: int) -> None:
        ticks = stores.other()
        ready.wait()
        try:
            for at in range(0, 50, 10):
                asked = [due(name, at, decided_ms=T0 + epoch) for name in names]
                answers = ticks.decide(epoch, asked)
                won.extend(
                    (epoch, each.schedule, each.due_ms)
                    for each, yes in zip(asked, answers, strict=True)
                    if yes
                )
        except OldEpoch as exc:
            refused.append(exc)
        ticks.close()

    threads = [threading.Thread(target=lead, args=(epoch,)) for epoch in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    rows = {(tick.schedule, tick.due_ms): tick.epoch for tick in stores.ticks.history(limit=1000)}
    assert {(name, at): epoch for epoch, name, at in won} == rows
    assert len(won) == len(rows) == 20
    assert all(exc.epoch < exc.newest <= 8 for exc in refused)
    assert stores.ticks.newest_epoch() == 8


def test_an_old_epoch_writes_nothing_at_all(stores) -> None:
    ticks: TickStore = stores.ticks
    assert ticks.newest_epoch() == 0
    ticks.put_cursors(3, [cursor("a")])
    ticks.decide(3, [due("a")])
    stores.other().open_term(5)

    for write in (
        lambda: ticks.open_term(4),
        lambda: ticks.put_cursors(3, [cursor("b"), cursor("a", 99)]),
        lambda: ticks.drop_cursors(3, ["a"]),
        lambda: ticks.decide(3, [due("b"), due("a", 1)]),
        lambda: ticks.sent(3, [("a", T0)], T0),
        lambda: ticks.missed(3, "a", T0, "w"),
    ):
        with pytest.raises(OldEpoch) as caught:
            write()
        assert caught.value.newest == 5

    assert ticks.newest_epoch() == 5
    assert ticks.cursors() == {"a": cursor("a", 0)}
    assert [(tick.schedule, tick.state, tick.epoch) for tick in ticks.history()] == [("a", State.DUE, 3)]
    ticks.sent(7, [("a", T0)], T0)
    assert (ticks.newest_epoch(), ticks.last()["a"].epoch) == (7, 7)


def test_a_due_time_is_decided_once_and_its_cursor_moves_with_it(stores) -> None:
    ticks: TickStore = stores.ticks
    ticks.put_cursors(1, [cursor("a", 10), cursor("b", 10)])

    assert ticks.decide(1, [due("a", 10), due("a", 20), skipped("a", 30), due("b", 5)]) == [
        *(False, True, True, False)
    ]
    assert {name: each.decided_ms - T0 for name, each in ticks.cursors().items()} == {"a": 30, "b": 10}
    # The answer was lost: asked again by the same term it is its own, by another it is decided.
    assert ticks.decide(1, [due("a", 20)]) == [True]
    assert ticks.decide(1, [due("a", 20, decided_ms=T0 + 21)]) == [False]
    assert ticks.decide(2, [due("a", 20), skipped("a", 40)]) == [False, True]
    assert moments(ticks.unfinished()) == [("a", 20)]

    many = {f"m{number}": number for number in range(12)}
    ticks.put_cursors(2, [cursor(name) for name in many])
    assert all(ticks.decide(2, [due(name, at) for name, at in many.items()]))
    assert {name: ticks.cursors()[name].decided_ms - T0 for name in many} == many
    ticks.drop_cursors(2, many)
    ticks.sent(2, [(name, T0 + at) for name, at in many.items()], T0)

    ticks.put_cursors(2, [cursor("a", 20, anchor=7), cursor("b", 15, anchor=7)])
    assert ticks.cursors() == {"a": cursor("a", 40), "b": cursor("b", 15)}
    ticks.put_cursors(2, [cursor("a", 5, definition="other", anchor=5)])
    assert ticks.cursors()["a"] == cursor("a", 5, definition="other", anchor=5)
    # The row outlives the cursor: a series that begins anew does not decide it again.
    assert ticks.decide(2, [due("a", 20, decided_ms=T0 + 99), due("a", 21)]) == [False, True]
    ticks.drop_cursors(2, ["a", "never"])
    assert set(ticks.cursors()) == {"b"}


def test_what_is_due_is_finished_or_missed_and_never_both(stores) -> None:
    ticks: TickStore = stores.ticks
    ticks.put_cursors(1, [cursor("a"), cursor("b")])
    ticks.decide(1, [due("a", 20), due("a", 30), due("b", 10)])
    assert moments(ticks.unfinished()) == [("b", 10), ("a", 20), ("a", 30)]
    assert moments(ticks.late(before_ms=T0 + 20)) == [("b", 10)]

    ticks.missed(2, "a", T0 + 20, "the broker is away")
    ticks.sent(2, [("a", T0 + 20), ("b", T0 + 10), ("never", T0)], T0 + 50)
    ticks.missed(2, "b", T0 + 10, "too late")

    assert moments(ticks.unfinished()) == [("a", 30)]
    assert [(tick.state, tick.why, tick.sent_ms, tick.epoch) for tick in ticks.history()] == [
        (State.DUE, "", None, 1),
        (State.MISSED, "the broker is away", None, 2),
        (State.SENT, "", T0 + 50, 2),
    ]


def test_what_became_of_a_task_goes_forward_only(stores) -> None:
    ticks: TickStore = stores.ticks
    ticks.decide(1, [due("a")])
    task = task_id_for("a", T0)

    def after(*steps: tuple[Outcome, int]) -> tuple[Any, ...]:
        assert all(ticks.note(task, outcome, T0 + at, outcome.value) for outcome, at in steps)
        row = ticks.last()["a"]
        return row.outcome, row.started_ms, row.ended_ms, row.detail

    assert after((Outcome.STARTED, 1), (Outcome.STARTED, 2)) == (Outcome.STARTED, T0 + 1, None, "started")
    assert after((Outcome.DEAD, 3), (Outcome.STARTED, 4), (Outcome.CANCELLED, 5)) == (
        *(Outcome.DEAD, T0 + 1, T0 + 3, "dead"),
    )
    assert after((Outcome.SUCCEEDED, 6), (Outcome.DEAD, 7), (Outcome.SUCCEEDED, 8)) == (
        *(Outcome.SUCCEEDED, T0 + 1, T0 + 6, "succeeded"),
    )
    assert ticks.last()["a"].state is State.DUE
    assert not ticks.note(task_id_for("b", T0), Outcome.STARTED, T0)
    assert not ticks.note("no-uuid", Outcome.STARTED, T0)


def test_the_last_one_sent_is_found_behind_what_was_skipped(stores) -> None:
    ticks: TickStore = stores.ticks
    ticks.decide(1, [due("a", 10), due("a", 20), *(skipped("a", at) for at in range(30, 45))])
    assert ticks.last_sent("b") is None

    assert moments([ticks.last_sent("a")]) == [("a", 20)]
    ticks.missed(1, "a", T0 + 20, "w")

    assert moments([ticks.last_sent("a")]) == [("a", 10)]
    assert moments(list(ticks.last().values())) == [("a", 44)]


def test_history_is_read_page_by_page_without_a_gap(stores) -> None:
    ticks: TickStore = stores.ticks
    names = ["a", "B", "b", "\u00e9"]
    ticks.decide(1, [due(name, at) for at in range(3) for name in names])

    for schedule in (None, "b"):
        pages, before = [], None
        while page := ticks.history(schedule, limit=5, before=before):
            pages += page
            before = (page[-1].due_ms, page[-1].schedule)
        expected = {(name, at) for at in range(3) for name in names if schedule in (None, name)}
        assert len(pages) == len(expected)
        assert set(moments(pages)) == expected
        assert [tick.due_ms for tick in pages] == sorted((tick.due_ms for tick in pages), reverse=True)


def test_pruning_takes_what_is_old_or_too_much_and_never_what_is_due_or_the_latest(stores) -> None:
    ticks: TickStore = stores.ticks
    ticks.put_cursors(1, [cursor("a"), cursor("yearly"), cursor("busy"), cursor("gone")])
    ticks.decide(1, [due("a", at) for at in (0, 10, 20, 30)])
    ticks.decide(1, [due("yearly", 0), due("gone", 0), *(due("busy", 100 + at) for at in range(9))])
    done = [(name, T0 + at) for name, at in (("a", 0), ("a", 20), ("a", 30), ("yearly", 0), ("gone", 0))]
    ticks.sent(1, [*done, *(("busy", T0 + 100 + at) for at in range(1, 9))], T0 + 200)
    ticks.drop_cursors(1, ["gone"])

    gone = [ticks.prune(before_ms=T0 + 25, most=5, limit=2) for _ in range(8)]

    assert all(each <= 4 for each in gone), "bounded"
    assert gone[-1] == 0
    # Of "busy" the oldest is to be sent: it stays, and counts.
    kept = {("a", 10), ("a", 30), ("yearly", 0), ("busy", 100), *(("busy", at) for at in range(104, 109))}
    assert set(moments(ticks.history())) == kept
    assert set(ticks.last()) == {"a", "yearly", "busy"}
    assert ticks.decide(1, [due("busy", 101)]) == [False]
    ticks.sent(1, [("a", T0 + 10)], T0)
    assert ticks.prune(before_ms=T0 + 10**6, most=100) == 5
    assert set(moments(ticks.history())) == {("a", 30), ("yearly", 0), ("busy", 100), ("busy", 108)}


@on(*DATABASES)
def test_a_batch_is_written_whole_or_not_at_all(stores, monkeypatch) -> None:
    ticks: TickStore = stores.ticks
    ticks.put_cursors(1, [cursor("a")])

    def broken(*_: object) -> None:
        raise RuntimeError("killed here")

    with monkeypatch.context() as patched:
        patched.setattr(in_database, "_move", broken)
        with pytest.raises(RuntimeError):
            ticks.decide(4, [due("a"), due("b")])

    assert ticks.history() == []
    assert ticks.newest_epoch() == 1
    assert ticks.cursors() == {"a": cursor("a")}
    assert ticks.decide(4, [due("a"), due("b")]) == [True, True]


@on(*DATABASES)
def test_what_was_decided_stays_when_the_transaction_of_the_caller_is_rolled_back(stores) -> None:
    connections[stores.alias].ensure_connection()
    with transaction.atomic(using=stores.alias):
        connections[stores.alias].needs_rollback = True
        stores.ticks.decide(1, [due("a")])
        assert stores.ticks.note(task_id_for("a", T0), Outcome.STARTED, T0)

    assert stores.ticks.last()["a"].outcome is Outcome.STARTED


@on("redis", *DATABASES)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_leaves_both_sides_their_own_connections(stores) -> None:
    stores.ticks.decide(1, [due("a")])

    child = os.fork()
    if not child:
        status = 1
        try:
            stores.ticks.decide(1, [due("b", at) for at in range(20)])
            status = 0
        finally:
            os._exit(status)
    stores.ticks.decide(1, [due("c", at) for at in range(20)])

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert {name: tick.due_ms - T0 for name, tick in stores.ticks.last().items()} == {
        "a": 0,
        "b": 19,
        "c": 19,
    }


@on("postgres", "mariadb")
def test_a_connection_that_was_cut_is_renewed_within_the_call(stores) -> None:
    stores.ticks.decide(1, [due("a")])

    with stores.ticks._of_beat().in_place(stores.alias):
        end_session(stores.alias)

    assert stores.ticks.decide(1, [due("a", 1)]) == [True]
    connections[stores.alias].ensure_connection()
    end_session(stores.alias)
    assert len(stores.ticks.history()) == 2


@on("postgres", "mariadb")
def test_a_leader_that_is_stopped_in_its_transaction_does_not_hold_up_the_next(stores, monkeypatch) -> None:
    monkeypatch.setattr(link, "_IDLE_SECONDS", 1)
    # A process that is stopped does not cut itself off.
    monkeypatch.setattr(statements, "_PATIENCE_SECONDS", 30)
    stopped, goes_on = threading.Event(), threading.Event()
    told: list[Exception] = []

    def stand_still(sql: Any) -> None:
        stopped.set()
        goes_on.wait(20)

    def lead() -> None:
        ticks = stores.other()
        try:
            ticks._write(1, stand_still)
        except Exception as exc:
            told.append(exc)
        with pytest.raises(OldEpoch):
            ticks.decide(1, [due("a")])
        told.append(OldEpoch(1, 2))
        ticks.close()

    thread = threading.Thread(target=lead)
    thread.start()
    assert stopped.wait(20)
    try:
        wait_until(lambda: _opens(stores.ticks, 2), 10)
    finally:
        goes_on.set()
        thread.join()

    assert [type(exc) for exc in told] in ([TicksUnavailable, OldEpoch], [OldEpoch, OldEpoch])


def _opens(ticks: TickStore, epoch: int) -> bool:
    try:
        ticks.open_term(epoch)
    except TicksUnavailable:
        return False
    return True


@on(*DATABASES)
def test_missing_tables_are_told_with_the_command_that_makes_them(stores) -> None:
    rename(stores.alias, TickRow._meta.db_table, "away")
    try:
        with pytest.raises(
            TicksUnavailable, match=f"manage.py migrate beat_leader --database {stores.alias}"
        ):
            stores.ticks.decide(1, [due("a")])
    finally:
        rename(stores.alias, "away", TickRow._meta.db_table)


def _goes_down(made: Stores, stop: Callable[[], object], start: Callable[[], object]) -> None:
    made.ticks.decide(1, [due("a")])
    stop()
    for ask in (lambda: made.ticks.decide(1, [due("b")]), made.ticks.cursors, made.register.now):
        with within(5), pytest.raises(TicksUnavailable):
            ask()
    start()
    assert made.ticks.decide(1, [due("b", 1)]) == [True]


def test_a_database_that_is_killed_is_unavailable_soon_and_used_again(django_db_blocker) -> None:
    try:
        server = PostgresServer()
    except ServerMissing as missing:
        absent(str(missing))
    with server, django_db_blocker.unblock(), beat_database("beat_own", server.url) as alias:
        made = of_database(alias)
        _goes_down(made, server.kill, server.start)
        assert set(made.ticks.last()) == {"a", "b"}
        made.close()


def test_a_redis_that_is_killed_is_unavailable_soon_and_used_again(make_redis) -> None:
    server = make_redis()
    made = of_redis(server.url)
    _goes_down(made, server.kill, server.start)
    made.close()


@on("redis")
def test_keys_carry_the_prefix_of_the_broker_and_none_is_left_of_what_was_pruned(stores, redis_url) -> None:
    with redis.Redis.from_url(redis_url) as client:
        stores.ticks.put_cursors(1, [cursor("a")])
        stores.ticks.decide(1, [due("a")])
        stores.ticks.sent(1, [("a", T0)], T0)
        stores.ticks.drop_cursors(1, ["a"])
        written = client.keys()
        assert len(written) == 5
        assert all(key.startswith(b"shop:hardening:beat:") for key in written)

        assert stores.ticks.prune(before_ms=T0 + 1, most=1) == 1

        assert client.keys() == [b"shop:hardening:beat:fence"]
