"""Operations on each database: frozen, claimed once, resumed after any death, and settled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from dlq.discard import discard
from dlq.errors import OwnApproval
from dlq.models import DeadLetter, Operation, OperationEvent, OperationItem, SendingPace
from dlq.operations import cancelled, duty, making, outcomes, staging
from dlq.operations.control import approve, cancel, pause, resume, start
from dlq.operations.examine import examine
from dlq.operations.limiter import reserve
from dlq.operations.making import letters_of_source, make_operation, since
from dlq.operations.outcomes import note_success, settle, succeeded
from dlq.operations.pace import Ramp, Rate, Share, Unlimited
from dlq.operations.progress import progress
from dlq.operations.runner import Turn
from dlq.operations.states import Kind, PausedBecause
from dlq.replay import replay
from dlq.sink import DatabaseSink
from tests.helpers.dlq_databases import KINDS, letters_in
from tests.helpers.dlq_letters import FAILED_AT
from tests.helpers.mishaps import within
from tests.helpers.operating import ListBroker, failed_again, kept, run, started, states, verdicts


@pytest.fixture(params=KINDS, autouse=True)
def alias(request, tmp_path, settings, django_db_blocker) -> Iterator[str]:
    with django_db_blocker.unblock(), letters_in(request.param, request, tmp_path) as name:
        settings.DLQ = {"DATABASE": name}
        yield name


@pytest.fixture
def broker() -> ListBroker:
    return ListBroker()


def killed(_batch: Any) -> None:
    raise KeyboardInterrupt


def state_of(row: Any) -> str:
    row.refresh_from_db()
    return str(row.state)


def test_the_letters_of_a_filter_are_frozen_in_order_and_later_ones_are_only_counted() -> None:
    rows = [kept(failed_at=FAILED_AT - timedelta(days=number)) for number in range(3)]
    other = kept(task_name="other.task")
    chosen = DeadLetter.objects.filter(task_name="shop.tasks.charge")
    source = {"kind": "filter", "lookups": {"task_name": "shop.tasks.charge"}}

    operation = make_operation(letters=chosen, by="ops", source=source)
    limited = make_operation(letters=chosen, by="ops", source=source, limit=2)
    kept()

    items = OperationItem.objects.filter(operation=operation).order_by("position")
    assert [item.letter_id for item in items] == [row.pk for row in reversed(rows)]
    assert [item.position for item in items] == [0, 1, 2]
    assert {item.task_id for item in items} == {row.replay_task_id for row in rows}
    assert {item.replay_number for item in items} == {1}
    assert (operation.total, limited.total, since(operation)) == (3, 2, 1)
    assert other.pk not in verdicts(operation)
    assert state_of(operation) == "planned"


def test_each_letter_is_claimed_sent_and_marked(broker) -> None:
    rows = [kept() for _ in range(3)]
    operation = started(rows)

    assert run(operation, broker) is Turn.ENDED

    assert sorted(broker.ids) == sorted(row.replay_task_id for row in rows)
    assert states(operation) == ["sent"] * 3
    assert {state_of(row) for row in rows} == {"replayed"}
    assert state_of(operation) == "settling"


def test_a_runner_that_died_after_staging_is_gone_on_with_by_the_same_messages(broker) -> None:
    rows = [kept() for _ in range(3)]
    operation = started(rows)
    broker.at_send = killed
    with pytest.raises(KeyboardInterrupt):
        run(operation, broker)
    assert states(operation) == ["staged"] * 3
    broker.at_send = lambda _batch: None

    run(operation, broker)

    assert sorted(broker.ids) == sorted(row.replay_task_id for row in rows)
    assert states(operation) == ["sent"] * 3


def test_a_second_runner_is_held_off_until_the_lease_of_the_first_is_over(broker) -> None:
    operation = started([kept()])
    other = ListBroker()
    turns = []
    broker.at_send = lambda _batch: turns.append(run(operation, other))

    run(operation, broker)

    assert turns == [Turn.HELD]
    assert (len(broker.ids), other.ids) == (1, [])


def test_a_runner_whose_lease_another_took_sends_at_most_the_same_and_marks_nothing(broker) -> None:
    row = kept()
    operation = started([row])
    other = ListBroker()

    def overtaken(_batch: Any) -> None:
        Operation.objects.filter(pk=operation.pk).update(runner_until=timezone.now() - timedelta(days=1))
        other.at_send = lambda _: None
        assert run(operation, other) is Turn.ENDED

    broker.at_send = overtaken

    assert run(operation, broker) is Turn.HELD

    assert broker.ids == other.ids == [row.replay_task_id]
    assert OperationEvent.objects.filter(operation=operation, what="all sent").count() == 1


def test_of_two_operations_on_one_letter_the_first_claim_has_it(broker) -> None:
    row = kept()
    first, second = started([row]), started([row])
    other = ListBroker()
    broker.at_send = lambda _batch: run(second, other)

    run(first, broker)

    assert (len(broker.ids), other.ids) == (1, [])
    assert verdicts(second) == {row.pk: "claimed"}


@pytest.mark.parametrize("act", [pause, cancel])
def test_what_is_staged_when_people_stop_an_operation_is_sent_and_no_more(broker, monkeypatch, act) -> None:
    monkeypatch.setattr("dlq.operations.runner.CHUNK", 2)
    rows = [kept() for _ in range(5)]
    operation = started(rows)
    broker.at_send = lambda _batch: act(operation.pk, by="ops")

    run(operation, broker)

    assert len(broker.ids) == 2
    rest = "waiting" if act is pause else "not_sent"
    assert states(operation) == ["sent", "sent", rest, rest, rest]
    assert DeadLetter.objects.open().count() == 3
    broker.at_send = lambda _batch: None
    assert resume(operation.pk, by="ops") is (act is pause)
    run(operation, broker)
    assert len(broker.ids) == (5 if act is pause else 2)


def test_letters_that_may_not_be_sent_are_left_alone_with_their_verdict(broker, settings) -> None:
    settings.DLQ = {**settings.DLQ, "REPLAY_LIMIT": 2}
    discarded, often, gone, good = kept(), kept(replay_number=2), kept(), kept()
    operation = started([discarded, often, gone, good])
    discard([discarded.pk], by="ops", reason="known")
    gone_id = gone.pk
    gone.delete()

    run(operation, broker)

    assert verdicts(operation) == {
        discarded.pk: "not_open",
        often.pk: "replayed_too_often",
        gone_id: "gone",
        good.pk: "",
    }
    assert broker.ids == [good.replay_task_id]
    assert state_of(often) == "open"
    run(started([often], over_limit=True), broker)
    assert state_of(often) == "replayed"


def test_what_no_queue_takes_ends_as_not_sent_and_its_letter_is_open_with_the_error(broker) -> None:
    bad, good = kept(), kept()
    operation = started([bad, good])
    broker.refuses = {bad.replay_task_id}

    run(operation, broker)

    assert sorted(states(operation)) == ["not_sent", "sent"]
    bad.refresh_from_db()
    assert (bad.state, bad.replay_error) == ("open", "nobody takes it")


def test_a_broker_that_is_down_pauses_the_operation_and_every_letter_is_open(broker) -> None:
    rows = [kept() for _ in range(3)]
    operation = started(rows)
    broker.down = "nobody there"

    assert run(operation, broker, broker_tries=1) is Turn.BROKER

    operation.refresh_from_db()
    assert (operation.state, operation.paused_because) == ("paused", PausedBecause.BROKER)
    assert states(operation) == ["waiting"] * 3
    assert DeadLetter.objects.open().count() == 3
    broker.down = ""
    resume(operation.pk, by="ops")
    run(operation, broker)
    assert states(operation) == ["sent"] * 3


def test_what_the_broker_did_not_take_of_a_cancelled_operation_ends_and_the_operation_closes(broker) -> None:
    rows = [kept() for _ in range(2)]
    operation = started(rows)
    broker.down = "nobody there"
    broker.at_send = lambda _batch: cancel(operation.pk, by="ops")

    run(operation, broker)
    settle()

    assert verdicts(operation) == dict.fromkeys((row.pk for row in rows), "cancelled")
    assert DeadLetter.objects.open().count() == 2
    assert state_of(operation) == "closed"


def test_a_large_operation_is_cancelled_at_once_and_its_items_are_ended_in_batches(
    broker, monkeypatch
) -> None:
    monkeypatch.setattr(making, "_BATCH", 2)
    monkeypatch.setattr(cancelled, "END_AT_ONCE", 2)
    rows = [kept(failed_at=FAILED_AT + timedelta(days=number)) for number in range(5)]
    operation = started(rows[::-1])
    in_order = OperationItem.objects.filter(operation=operation).order_by("position")
    assert [item.letter_id for item in in_order] == [row.pk for row in rows]

    cancel(operation.pk, by="ops")

    assert (state_of(operation), states(operation)) == ("cancelled", ["not_sent"] * 2 + ["waiting"] * 3)
    run(operation, broker)
    assert (state_of(operation), broker.ids) == ("cancelled", [])
    settle()
    assert (state_of(operation), states(operation)) == ("closed", ["not_sent"] * 5)
    assert {state_of(row) for row in rows} == {"open"}


def test_every_item_has_its_outcome_and_the_operation_closes(broker) -> None:
    rows = [kept() for _ in range(3)]
    operation = started(rows, pause_above_percent=100, pause_on_same_cause=False)
    run(operation, broker)
    by_id = {message.task_id: message for message in broker.taken}
    for row in rows[:2]:
        succeeded(letter_id=str(row.pk), task_id=row.replay_task_id)
    DatabaseSink().keep(failed_again(by_id[rows[2].replay_task_id]))

    settle()

    done = progress(operation)
    assert (done.succeeded, done.came_back, done.percent) == (2, 1, 100)
    again = OperationItem.objects.get(operation=operation, letter=rows[2]).new_letter
    assert again is not None
    assert (again.state, again.replay_of_id) == ("open", rows[2].pk)
    assert state_of(operation) == "closed"


def test_a_success_that_comes_before_the_mark_settles_the_item_and_closes_the_letter(broker) -> None:
    row = kept()
    operation = started([row])
    broker.at_send = lambda _batch: succeeded(letter_id=str(row.pk), task_id=row.replay_task_id)

    run(operation, broker)

    assert (states(operation), state_of(row), state_of(operation)) == (["succeeded"], "replayed", "closed")


def test_a_message_that_the_broker_had_although_it_gave_an_error_settles_its_item_all_the_same(
    broker,
) -> None:
    row = kept()
    operation = started([row])
    broker.down = "the answer was lost"
    run(operation, broker, broker_tries=1)
    assert state_of(row) == "open"

    succeeded(letter_id=str(row.pk), task_id=row.replay_task_id)

    assert (states(operation), state_of(row)) == (["succeeded"], "replayed")


def test_a_success_that_comes_as_the_next_runner_looks_is_not_overwritten(broker, alias, monkeypatch) -> None:
    row = kept()
    operation = started([row])
    broker.at_send = killed
    with pytest.raises(KeyboardInterrupt):
        run(operation, broker)
    letters_of = staging._letters

    def meanwhile(*arguments: Any) -> Any:
        note_success(row.pk, row.replay_task_id, alias=alias)
        return letters_of(*arguments)

    monkeypatch.setattr(staging, "_letters", meanwhile)

    run(operation, broker)

    assert (states(operation), state_of(row), broker.ids) == (["succeeded"], "replayed", [])


def test_what_is_not_heard_of_is_asked_for_and_then_called_lost(broker, monkeypatch, settings) -> None:
    rows = [kept() for _ in range(2)]
    operation = started(rows)
    run(operation, broker)
    long_ago = timezone.now() - timedelta(seconds=outcomes.ASKED_AFTER_SECONDS + 1)
    OperationItem.objects.filter(operation=operation).update(sent_at=long_ago)

    class Recorded:
        def known(self, works: Any) -> list[bool]:
            return [work.delivery_key == rows[0].delivery_key for work in works]

    monkeypatch.setattr(outcomes, "successes_of", lambda _app: Recorded())

    settle()
    heard = progress(operation)
    settings.DLQ = {**settings.DLQ, "LOST_AFTER_SECONDS": 10.0}
    settle()

    assert (heard.succeeded, heard.sent) == (1, 1)
    assert (progress(operation).succeeded, progress(operation).lost) == (1, 1)
    assert state_of(operation) == "closed"


def test_a_ramp_waits_for_the_outcomes_of_each_step(broker) -> None:
    rows = [kept() for _ in range(4)]
    operation = started(rows, pace=Ramp(steps=(1, 2)))

    assert run(operation, broker) is Turn.WAITING
    assert len(broker.ids) == 1
    tell_all(broker)
    assert run(operation, broker) is Turn.WAITING
    assert len(broker.ids) == 3
    tell_all(broker)
    run(operation, broker)
    assert len(broker.ids) == 4


def test_an_operation_pauses_when_its_cause_returns_and_goes_on_when_it_is_resumed(broker) -> None:
    rows = [kept() for _ in range(3)]
    DeadLetter.objects.all().update(fingerprint="")
    operation = started(rows, pace=Ramp(steps=(1, 2)))
    run(operation, broker)
    DatabaseSink().keep(failed_again(broker.taken[0]))
    OperationItem.objects.filter(state="came_back").update(same_cause=True)

    run(operation, broker)

    operation.refresh_from_db()
    assert (operation.state, operation.paused_because, len(broker.ids)) == ("paused", "same_cause", 1)
    resume(operation.pk, by="ops")
    run(operation, broker)
    assert len(broker.ids) == 3


def test_when_all_is_sent_failures_pause_nothing_and_the_operation_closes(broker) -> None:
    operation = started([kept() for _ in range(2)], pace=Ramp(steps=(2,)))
    assert run(operation, broker) is Turn.WAITING
    for message in broker.taken:
        DatabaseSink().keep(failed_again(message))

    run(operation, broker)

    assert (state_of(operation), states(operation)) == ("closed", ["came_back"] * 2)


def test_an_early_failure_of_a_fixed_rate_pauses_nothing_before_the_tenth_outcome(broker) -> None:
    operation = started([kept() for _ in range(6)], pace=Rate(per_second=0.01), pause_on_same_cause=False)
    assert run(operation, broker) is Turn.WAITING
    DatabaseSink().keep(failed_again(broker.taken[0]))
    SendingPace.objects.all().delete()
    Operation.objects.filter(pk=operation.pk).update(pace=Rate(per_second=1_000).as_json())

    run(operation, broker, wait=True)

    assert len(broker.ids) == 6


def test_a_copy_leaves_its_letter_alone_and_has_an_identity_of_its_own(broker) -> None:
    row = kept()
    operation = started([row], kind=Kind.COPY)
    again = started([row], kind=Kind.COPY)
    run(operation, broker)
    run(again, broker)

    keys = [message.headers["hardening_key"] for message in broker.taken]
    assert len({row.delivery_key, *keys}) == 3
    assert keys == broker.ids
    assert state_of(row) == "open"
    for message in broker.taken:
        succeeded(letter_id=str(row.pk), task_id=message.task_id)
    assert (states(operation), states(again), state_of(row)) == (["succeeded"], ["succeeded"], "open")


def test_two_who_send_to_one_queue_share_its_pace(alias) -> None:
    now = timezone.now()
    waits = [reserve("payments", 10, 100.0, now=now, alias=alias) for _ in range(6)]
    other = reserve("slow", 10, 100.0, now=now, alias=alias)

    assert waits == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5], abs=0.001)
    assert other == 0
    assert reserve("payments", 1, 100.0, now=now, alias=alias, longest_wait=0.1) is None
    assert SendingPace.objects.count() == 2


def test_a_fixed_rate_is_not_exceeded(broker) -> None:
    operation = started([kept() for _ in range(20)], pace=Rate(per_second=40.0))
    began = time.monotonic()

    run(operation, broker, wait=True)

    assert len(broker.ids) == 20
    # The first four may go at once; the last four wait for those before.
    assert time.monotonic() - began >= 16 / 40.0 - 0.2


def test_a_slow_pace_does_not_sleep_through_the_end_of_a_turn(broker) -> None:
    operation = started([kept() for _ in range(2)], pace=Rate(per_second=0.01))

    with within(5.0):
        turns = [run(operation, broker, wait=True, seconds=0.3) for _ in range(2)]

    assert (turns, len(broker.ids)) == ([Turn.TIME_OVER] * 2, 1)


def test_a_share_grows_with_what_its_queue_drains_from_turn_to_turn(broker, monkeypatch) -> None:
    monkeypatch.setattr("dlq.operations.drain._EVERY_SECONDS", 0.05)
    operation = started([kept() for _ in range(60)], pace=Share(percent=50.0))
    broker.length_of = lambda _queue: 0

    for _ in range(10):
        run(operation, broker, wait=True, seconds=0.1)

    assert len(broker.ids) > 10


def test_a_clock_of_the_database_that_was_wrong_for_a_while_stops_nobody(broker, alias) -> None:
    operation = started([kept()])
    later = timezone.now() + timedelta(days=1)
    SendingPace.objects.create(queue="payments", next_at=later)
    Operation.objects.filter(pk=operation.pk).update(runner=uuid4(), runner_until=later)

    assert reserve("payments", 1, 10.0, now=timezone.now(), alias=alias) == 0
    assert run(operation, broker) is Turn.ENDED


def test_outcomes_since_a_resume_are_judged_by_the_clock_of_the_database(broker, monkeypatch) -> None:
    row = kept()
    operation = started([row], pace=Rate(per_second=100.0))
    run(operation, broker)
    resumed = timezone.now()
    Operation.objects.filter(pk=operation.pk).update(judged_from=resumed)
    behind = resumed - timedelta(hours=1)
    monkeypatch.setattr(timezone, "now", lambda: behind)

    DatabaseSink().keep(failed_again(broker.taken[0]))

    operation.refresh_from_db()
    assert outcomes.judged_of(operation).came_back == 1


def test_of_many_operations_that_wait_none_keeps_another_from_its_turn(broker, monkeypatch) -> None:
    monkeypatch.setattr(duty, "_MOST_AT_ONCE", 2)
    waiting = [started([kept(), kept()], pace=Ramp(steps=(1,))) for _ in range(3)]
    for each in waiting:
        run(each, broker)
    last = started([kept()])

    turns = (found for _ in range(200) for found in [duty.runnable()])

    assert any(last.pk in found for found in turns)


def test_an_operation_that_cannot_be_run_does_not_keep_the_others(broker, monkeypatch) -> None:
    odd, good = started([kept()]), started([kept()])
    Operation.objects.filter(pk=odd.pk).update(pace={"kind": "of a later version"})
    monkeypatch.setattr(duty, "Publisher", lambda _app, **_: broker)
    turns = []

    def on_turn(pk: Any, turn: Turn) -> None:
        turns.append((pk, turn))

    duty.operate(broker.app, stopped=lambda: len(turns) >= 2, on_turn=on_turn)

    assert turns == [(odd.pk, Turn.WAITING), (good.pk, Turn.ENDED)]
    assert (states(odd), states(good)) == (["waiting"], ["sent"])


def test_a_replay_that_a_worker_took_up_says_what_became_of_it(broker, monkeypatch) -> None:
    row = kept()
    broker.app.conf.broker_url = "memory://"
    begin = start

    def taken_up(pk: Any, **options: Any) -> bool:
        begun = begin(pk, **options)
        until = timezone.now() + timedelta(seconds=0.3)
        Operation.objects.filter(pk=pk).update(runner=uuid4(), runner_until=until)
        return begun

    monkeypatch.setattr("dlq.replay.start", taken_up)

    outcome = replay([row.pk], by="ops", app=broker.app)

    assert outcome.sent == (row.pk,)
    assert state_of(row) == "replayed"


@pytest.mark.parametrize(
    "lookups",
    [
        {"sealed__startswith": "a"},
        {"replay_of__sealed__contains": "a"},
        {"group__note__regex": "("},
        {"task_name__regex": "("},
        {"failed_at__gte": "never"},
        {"failed_at__gte": ["2026-01-01"]},
        {"unknown": 1},
    ],
    ids=lambda given: str(next(iter(given))),
)
def test_a_source_that_asks_for_more_than_columns_of_letters_counts_nothing(lookups) -> None:
    assert letters_of_source({"kind": "filter", "lookups": lookups}) is None


def test_what_is_newer_in_a_group_is_found_by_its_index(alias) -> None:
    operation = make_operation(letters=[], by="ops", source={"kind": "group", "fingerprint": "1-a"})
    row = kept()
    DeadLetter.objects.filter(pk=row.pk).update(group_id="1-a")

    assert since(operation) == 1
    letters = letters_of_source(operation.source)
    assert letters is not None
    assert "fingerprint" not in str(letters.open().values("pk").query)


def test_an_operation_above_the_threshold_waits_for_another_person(settings) -> None:
    settings.DLQ = {**settings.DLQ, "APPROVAL_ABOVE": 1}
    small = make_operation(letters=[kept().pk], by="alice")
    large = make_operation(letters=[kept().pk, kept().pk], by="alice")

    assert (start(small.pk, by="alice"), start(large.pk, by="alice")) == (True, True)

    assert (state_of(small), state_of(large)) == ("running", "awaiting")
    with pytest.raises(OwnApproval):
        approve(large.pk, by="alice")
    assert approve(large.pk, by="bob") is True
    assert approve(large.pk, by="carol") is False
    large.refresh_from_db()
    assert (large.state, large.approved_by) == ("running", "bob")
    trail = OperationEvent.objects.filter(operation=large).values_list("what", "by")
    assert list(trail) == [("made", "alice"), ("approval asked", "alice"), ("approved", "bob")]


def test_a_dry_run_counts_verdicts_and_moves_nothing(broker) -> None:
    @broker.app.task(name="shop.tasks.charge")  # type: ignore[untyped-decorator]
    def charge(order_id: int, password: str, card_number: str) -> None: ...

    rows = [
        kept(),
        kept(task_name="unknown.task"),
        kept(body=b'[[1], {}, {"callbacks": null}]'),
        kept(expires="2020-01-01T00:00:00"),
        kept(replay_number=7),
    ]
    operation = make_operation(letters=[row.pk for row in rows], by="ops", pace=Unlimited())

    found = examine(operation.pk, app=broker.app, consumers=False)

    assert found.counts == {
        "fits": 1,
        "unregistered": 1,
        "arguments_do_not_bind": 1,
        "expired": 1,
        "replayed_too_often": 1,
    }
    assert found.complete
    assert (states(operation), state_of(operation)) == (["waiting"] * 5, "planned")


def test_a_replay_leaves_an_operation_as_its_record(broker) -> None:
    row = kept()
    broker.app.conf.broker_url = "memory://"

    outcome = replay([row.pk], by="ops", why="fixed", app=broker.app)

    assert outcome.operation is not None
    operation = Operation.objects.get(pk=outcome.operation)
    assert (operation.created_by, operation.why, operation.total) == ("ops", "fixed", 1)


def tell_all(broker: ListBroker) -> None:
    for message in broker.taken:
        succeeded(letter_id=message.headers["hardening_letter"], task_id=message.task_id)
