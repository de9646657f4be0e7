"""Restoring, purging, pruning, exporting and importing letters keep their promises on every database."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import AnonymousUser
from django.db import IntegrityError, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dlq import archive as archive_module
from dlq.access import covers, items_for, letters_for
from dlq.archive import restore
from dlq.conditions import conditions
from dlq.discard import discard
from dlq.errors import WrongCount
from dlq.groups.duty import tend
from dlq.groups.triage import acknowledge, resolve
from dlq.locks import is_lock_conflict
from dlq.models import Attempt, DeadLetter, LetterGroup, Operation, OperationEvent, OperationItem
from dlq.operations.making import make_operation
from dlq.operations.states import ItemState, OperationState, PausedBecause
from dlq.purging import purge, to_be_purged
from dlq.retention.duty import retention_duty
from dlq.retention.pruning import ITEMS_DROPPED, due, prune
from dlq.rows import letter_row
from dlq.sink import DatabaseSink
from dlq.transfer.exporting import Form, exported
from dlq.transfer.importing import import_lines
from dlq.transfer.lines import Contents
from dlq.transfer.paging import letters_with_attempts
from hardening.core.alerts import Fact
from tests.helpers.dlq_databases import KINDS, letters_in
from tests.helpers.dlq_letters import FAILED_AT, attempt, body_of, letter

DAY = timedelta(days=1)


@pytest.fixture(params=KINDS)
def alias(request, tmp_path, settings, django_db_blocker) -> Iterator[str]:
    with django_db_blocker.unblock(), letters_in(request.param, request, tmp_path) as name:
        settings.DLQ = {"DATABASE": name}
        yield name


@pytest.fixture
def told(settings, alias) -> Callable[..., None]:
    """Sets entries of DLQ beside the database."""

    def tell(**entries: Any) -> None:
        settings.DLQ = {"DATABASE": alias, **entries}

    return tell


def kept(**fields: Any) -> DeadLetter:
    record = letter(**fields)
    DatabaseSink().keep(record)
    row: DeadLetter = DeadLetter.objects.filter(task_id=record.task_id).latest("occurrence")
    return row


def given_up(*rows: DeadLetter) -> None:
    discard([row.pk for row in rows], by="test", reason="known")


def aged(row: DeadLetter, **columns: timedelta) -> None:
    now = timezone.now()
    DeadLetter.objects.filter(pk=row.pk).update(**{name: now - age for name, age in columns.items()})


# Restore


def test_a_discarded_letter_is_open_again_and_says_so(alias) -> None:
    row = kept()
    given_up(row)

    assert restore([row.pk], by="test").restored == (row.pk,)

    row.refresh_from_db()
    assert (row.state, row.closed_at, row.closed_by, row.discard_reason) == ("open", None, "", "")
    assert restore([row.pk], by="test").skipped == {"open": 1}


def test_a_letter_captured_again_meanwhile_keeps_the_old_one_in_the_archive(alias) -> None:
    record = letter()
    DatabaseSink().keep(record)
    given_up(DeadLetter.objects.get())
    DatabaseSink().keep(record)
    old = DeadLetter.objects.discarded().get()

    for dry_run in (True, False):
        assert dict(restore([old.pk], by="test", dry_run=dry_run).skipped) == {"newer": 1}

    given_up(DeadLetter.objects.open().get())
    both = list(DeadLetter.objects.order_by("occurrence").values_list("pk", flat=True))
    outcome = restore(both, by="test")
    assert (outcome.restored, dict(outcome.skipped)) == ((both[1],), {"newer": 1})


def test_a_failure_after_its_letter_was_restored_is_counted_with_it_whatever_its_number(alias) -> None:
    record = letter()
    for _ in range(2):
        DatabaseSink().keep(record)
        given_up(DeadLetter.objects.open().get())
    first = DeadLetter.objects.get(occurrence=1)
    restore([first.pk], by="test")

    DatabaseSink().keep(record)

    assert list(DeadLetter.objects.order_by("occurrence").values_list("occurrence", "state", "captures")) == [
        (1, "open", 2),
        (2, "discarded", 1),
    ]
    given_up(first)
    DatabaseSink().keep(record)
    assert DeadLetter.objects.open().get().occurrence == 3


def test_no_database_lets_two_letters_of_one_work_be_live(alias) -> None:
    record = letter()
    DatabaseSink().keep(record)
    given_up(DeadLetter.objects.get())
    DatabaseSink().keep(record)

    with pytest.raises(IntegrityError), transaction.atomic(using=alias):
        DeadLetter.objects.filter(occurrence=1).update(state="open", closed_at=None)


def test_a_capture_at_the_very_moment_of_restoring_wins_and_others_are_restored(alias, monkeypatch) -> None:
    record = letter()
    DatabaseSink().keep(record)
    rows = [DeadLetter.objects.get(), kept()]
    given_up(*rows)
    looked = archive_module._sorted_out

    def captured_meanwhile(chunk):
        found = looked(chunk)
        DatabaseSink().keep(record)
        return found

    monkeypatch.setattr(archive_module, "_sorted_out", captured_meanwhile)

    assert restore([row.pk for row in rows], by="test").restored == (rows[1].pk,)
    assert DeadLetter.objects.live().filter(task_id=record.task_id).get().occurrence == 2


def test_restoring_capturing_discarding_and_purging_at_once_leave_at_most_one_live(alias) -> None:
    record = letter()
    DatabaseSink().keep(record)
    most_live: list[int] = []

    def ids(state: str) -> list[Any]:
        return list(DeadLetter.objects.filter(state=state).values_list("pk", flat=True))

    def purge_one() -> None:
        old = ids("discarded")
        if len(old) > 3:
            purge(old[:1], by="test", confirm_count=to_be_purged(old[:1]))

    steps = [
        lambda: DatabaseSink().keep(record),
        lambda: discard(ids("open"), by="test", reason="x"),
        lambda: restore(ids("discarded"), by="test"),
        lambda: most_live.append(DeadLetter.objects.live().count()),
        purge_one,
    ]

    errors = at_once(steps, alias)

    assert errors == []
    assert max(most_live) == 1


def at_once(steps: Sequence[Callable[[], object]], alias: str, seconds: float = 2.0) -> list[Exception]:
    """Each step again and again in a thread of its own; what they raised beside locks and lost races."""
    errors: list[Exception] = []
    done = threading.Event()

    def run(step: Callable[[], object]) -> None:
        while not done.is_set():
            try:
                step()
            except WrongCount:
                continue
            except Exception as exc:
                if not is_lock_conflict(exc):
                    errors.append(exc)
                    break
        connections[alias].close()

    threads = [threading.Thread(target=run, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    done.wait(seconds)
    done.set()
    for thread in threads:
        thread.join(60)
    return errors


# Purge


def test_only_closed_letters_are_purged_and_only_as_many_as_were_confirmed(alias) -> None:
    closed, still_open = kept(), kept()
    given_up(closed)

    for wrong in (0, 2):
        with pytest.raises(WrongCount) as caught:
            purge(DeadLetter.objects.all(), by="test", confirm_count=wrong)
        assert caught.value.expected == 1
    assert DeadLetter.objects.count() == 2

    outcome = purge([closed.pk, still_open.pk], by="test", confirm_count=1)

    assert (outcome.purged, dict(outcome.skipped)) == (1, {"open": 1})
    assert set(Attempt.objects.values_list("letter_id", flat=True)) == {still_open.pk}


def test_what_tells_of_a_purged_letter_stays(alias) -> None:
    row = kept()
    tend(by_hand=True)
    operation = make_operation(letters=[row.pk], by="test")
    follower = kept(replay_number=1, replay_of=str(row.pk), delivery_key=row.delivery_key)
    OperationItem.objects.update(state=ItemState.CAME_BACK, new_letter=row, same_cause=True)
    given_up(row)

    purge(DeadLetter.objects.filter(pk=row.pk), by="test", confirm_count=1)

    item = OperationItem.objects.get(operation=operation)
    assert (item.letter_id, item.new_letter_id, item.same_cause) == (row.pk, None, True)
    follower.refresh_from_db()
    assert follower.replay_of_id == row.pk
    group = LetterGroup.objects.get(pk=row.fingerprint)
    assert (group.letters, group.sample_id) == (1, None)


def test_a_letter_whose_replay_has_no_outcome_yet_is_not_purged(alias) -> None:
    row = kept()
    make_operation(letters=[row.pk], by="test")
    OperationItem.objects.update(state=ItemState.SENT)
    DeadLetter.objects.update(state="replayed", closed_at=timezone.now())

    assert to_be_purged(DeadLetter.objects.all()) == 0
    assert dict(purge([row.pk], by="test", confirm_count=0).skipped) == {"awaited": 1}
    OperationItem.objects.update(state=ItemState.LOST)
    assert purge(DeadLetter.objects.all(), by="test", confirm_count=1).purged == 1


def test_many_are_purged_in_bounded_batches(alias, monkeypatch) -> None:
    monkeypatch.setattr("dlq.purging.BATCH", 3)
    given_up(*[kept() for _ in range(8)])
    told: list[int] = []

    assert purge(DeadLetter.objects.all(), by="t", confirm_count=8, on_batch=told.append).purged == 8

    assert told == [3, 6, 8]


# Retention


def test_without_retention_nothing_is_ever_deleted(alias) -> None:
    row = kept()
    given_up(row)
    aged(row, closed_at=5000 * DAY)

    assert prune(10).rows == 0
    retention_duty(None)
    assert DeadLetter.objects.count() == 1


def test_letters_are_kept_by_state_and_age(told, alias) -> None:
    told(RETENTION={"replayed": "10 d", "discarded": "90 d"})
    young, old, ancient = kept(), kept(), kept(failed_at=FAILED_AT - 900 * DAY)
    given_up(young, old)
    aged(young, closed_at=89 * DAY)
    aged(old, closed_at=91 * DAY)
    sent = kept()
    DeadLetter.objects.filter(pk=sent.pk).update(state="replayed", closed_at=timezone.now() - 11 * DAY)
    assert due() == {"replayed_purged": 1, "discarded_purged": 1, "items": 0}

    done = prune(10)

    assert (done.replayed_purged, done.discarded_purged, done.discarded, done.more) == (1, 1, 0, False)
    assert set(DeadLetter.objects.values_list("pk", "state")) == {
        (young.pk, "discarded"),
        (ancient.pk, "open"),
    }


def test_open_letters_are_archived_with_the_reason_before_they_are_deleted(told, alias, caplog) -> None:
    told(RETENTION={"open": {"after": "365 d", "reason": "nobody asked"}, "discarded": "90 d"})
    old, busy, _young = kept(), kept(), kept()
    for row in (old, busy):
        aged(row, failed_at=366 * DAY)
    aged(old, last_captured_at=366 * DAY)

    with caplog.at_level(logging.WARNING, "dlq.retention"):
        done = prune(10)

    old.refresh_from_db()
    assert (old.state, old.closed_by, old.discard_reason) == ("discarded", "retention", "nobody asked")
    assert (done.discarded, done.discarded_purged, DeadLetter.objects.open().count()) == (1, 0, 2)
    assert "1 open letters were older than 365 d" in caplog.text
    assert "nobody asked (shop.tasks.charge 1)" in caplog.text
    assert restore([old.pk], by="test").restored == (old.pk,)


def test_a_slice_ends_in_time_and_the_next_goes_on(told, alias) -> None:
    told(RETENTION={"discarded": "90 d"})
    rows = [kept() for _ in range(5)]
    given_up(*rows)
    for row in rows:
        aged(row, closed_at=91 * DAY)

    first = prune(0, batch=2)

    assert (first.discarded_purged, first.more) == (2, True)
    assert prune(10, batch=2).discarded_purged == 3


def test_items_of_old_closed_operations_go_and_their_figures_stay(told, alias) -> None:
    told(RETENTION={"operations": "30 d"})
    rows = [kept() for _ in range(3)]
    old, live = (make_operation(letters=[row.pk for row in rows], by="test") for _ in range(2))
    OperationItem.objects.filter(operation=old).update(state=ItemState.SUCCEEDED)
    Operation.objects.filter(pk=old.pk).update(
        state=OperationState.CLOSED, closed_at=timezone.now() - 31 * DAY
    )

    assert prune(10, batch=2).items == 3

    assert set(OperationItem.objects.values_list("operation_id", flat=True)) == {live.pk}
    event = OperationEvent.objects.get(operation=old, what=ITEMS_DROPPED)
    assert (event.detail["total"], event.detail["succeeded"]) == (3, 3)
    assert Operation.objects.get(pk=old.pk).total == 3


def test_a_worker_does_it_and_leaves_no_connection_open(told, alias, monkeypatch) -> None:
    told(RETENTION={"discarded": "90 d"})
    monkeypatch.setattr("dlq.retention.duty._not_before", 0.0)
    row = kept()
    given_up(row)
    aged(row, closed_at=91 * DAY)

    retention_duty(None)

    assert connections[alias].connection is None
    assert DeadLetter.objects.count() == 0


# Export and import


def lines(**options: Any) -> list[str]:
    return list(exported(DeadLetter.objects.all(), Form.JSON_LINES, **options))


def test_whole_letters_come_into_another_store_once_and_with_its_own_keys(told, alias, settings) -> None:
    row = kept(body=body_of(41, "hunter22"), attempts=(attempt(1), attempt(2)))
    closed = kept(task_name="shop.tasks.other")
    given_up(closed)
    written = [line.encode() for line in lines(contents=Contents.WHOLE)]
    before = {pk: DeadLetter.objects.get(pk=pk).record() for pk in (row.pk, closed.pk)}
    DeadLetter.objects.all().delete()
    told(ENCRYPTION_KEYS=[Fernet.generate_key().decode()])
    settings.SECRET_KEY = "of another environment"

    first, second = (import_lines(written, origin="staging") for _ in range(2))

    assert (first.imported, first.known, first.bad_lines) == (2, 0, 0)
    assert (second.imported, second.known, second.bad_lines) == (0, 2, 0)
    for pk, record in before.items():
        found = DeadLetter.objects.get(pk=pk)
        assert found.record() == record
        assert (found.sealed_with, found.imported_from) == ("fernet", "staging")
        assert found.body_digest == letter_row(record, keys=(), now=timezone.now()).body_digest
    assert [each.message for each in DeadLetter.objects.get(pk=row.pk).attempts.order_by("number")] == [
        "declined at attempt 1",
        "declined at attempt 2",
    ]
    again = DeadLetter.objects.get(pk=closed.pk)
    assert (again.state, again.discard_reason, again.closed_by) == ("discarded", "known", "test")


def test_work_that_is_here_already_is_not_overwritten(alias) -> None:
    record = letter()
    DatabaseSink().keep(record)
    written = [line.encode() for line in lines(contents=Contents.WHOLE)]
    DeadLetter.objects.all().delete()
    DatabaseSink().keep(record)
    mine = DeadLetter.objects.get()

    assert (import_lines(written, origin="x").known, DeadLetter.objects.get().pk) == (1, mine.pk)


def test_bad_lines_are_told_by_number_and_left_out(alias) -> None:
    kept()
    (good,) = lines(contents=Contents.WHOLE)
    (without,) = lines()
    DeadLetter.objects.all().delete()
    plain = json.loads(good)
    bad = [
        "no json",
        "[1]",
        json.dumps({**plain, "v": 99}),
        without,
        json.dumps({**plain, "id": "none"}),
        json.dumps({**plain, "state": "odd"}),
        json.dumps({**plain, "letter": {**plain["letter"], "payload": {"body": "%%%"}}}),
        json.dumps(
            {**plain, "letter": {**plain["letter"], "payload": {**plain["letter"]["payload"], "headers": 7}}}
        ),
        "[" * 100_000,
    ]

    done = import_lines([line.encode() for line in [*bad, "", good, "\xff"]], origin="x")

    assert (done.imported, done.bad_lines) == (1, len(bad) + 1)
    assert [each.number for each in done.bad] == [*range(1, len(bad) + 1), len(bad) + 3]
    assert all(each.why for each in done.bad)


def test_files_without_payload_hold_no_argument_and_shown_ones_no_secret(alias) -> None:
    kept(body=body_of(41, "hunter22", card_number="4111111111111111", note="harmless"))
    letters = DeadLetter.objects.all()

    for form in Form:
        nothing = "".join(exported(letters, form))
        shown = "".join(exported(letters, form, contents=Contents.SHOWN))
        assert "harmless" not in nothing
        assert "harmless" in shown
        for secret in ("hunter22", "4111111111111111"):
            assert secret not in nothing + shown


def test_a_table_holds_no_formula(alias) -> None:
    kept(task_name="=cmd()", attempts=(attempt(1, message='@x,"y"\nz'),))

    (row,) = csv.DictReader(io.StringIO("".join(exported(DeadLetter.objects.all(), Form.CSV))))

    assert (row["task"], row["error_message"], row["captures"]) == ("'=cmd()", '\'@x,"y"\nz', "1")


def test_twenty_thousand_letters_are_read_once_each_in_constant_memory(alias) -> None:
    many = 20_000
    sample = letter_row(letter(body=b"x" * 3_000), keys=(), now=timezone.now())

    def row(number: int) -> DeadLetter:
        made = copy(sample)
        made.pk, made.body_digest = uuid4(), str(number)
        # Many at one moment: pages begin in the middle of them.
        made.failed_at = FAILED_AT + timedelta(seconds=number // 700)
        return made

    for begin in range(0, many, 1000):
        DeadLetter.objects.bulk_create([row(begin + number) for number in range(1000)])
    before, most = resident(), 0
    seen = set()
    for each, _attempts in letters_with_attempts(DeadLetter.objects.all()):
        seen.add(each.pk)
        if len(seen) % 500 == 0:
            most = max(most, resident())

    assert len(seen) == many
    # All of them are about a hundred million bytes.
    assert most - before < 40e6


def test_a_file_begins_before_all_of_it_is_read_and_may_be_bounded(alias, monkeypatch) -> None:
    monkeypatch.setattr("dlq.transfer.paging.PAGE", 2)
    for _ in range(5):
        kept()

    with CaptureQueriesContext(connections[alias]) as statements:
        next(exported(DeadLetter.objects.all(), Form.JSON_LINES))

    assert len(statements) == 2
    assert len(lines(most=3)) == 3
    assert len(set(lines())) == 5


def resident() -> int:
    """Bytes of memory of this process, with what its database drivers hold."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# Access by task


class Somebody:
    def __init__(self, *held: str) -> None:
        self.held = held

    def has_perm(self, name: str) -> bool:
        return name in self.held


def test_letters_of_guarded_tasks_are_kept_from_who_lacks_the_permission(told, alias) -> None:
    told(
        TASK_PERMISSIONS={
            "billing.*": "shop.billing",
            "secret.*": {"permission": "shop.secret", "hidden": True},
        }
    )
    for name in ("billing.charge", "secret.job", "shop.mail", "Billing.charge"):
        kept(task_name=name)

    def names(user: Any, action: str) -> set[str]:
        return set(letters_for(user, action).values_list("task_name", flat=True))

    nobody: Any = Somebody()
    biller: Any = Somebody("shop.billing")
    both: Any = Somebody("shop.billing", "shop.secret")
    every = {"billing.charge", "secret.job", "shop.mail", "Billing.charge"}
    assert names(nobody, "view") == names(AnonymousUser(), "view") == every - {"secret.job"}
    assert names(nobody, "replay") == {"shop.mail", "Billing.charge"}
    assert names(biller, "replay") == every - {"secret.job"}
    assert names(both, "replay") == names(both, "view") == every
    assert not covers(biller, "replay", DeadLetter.objects.all())
    assert covers(both, "replay", DeadLetter.objects.all())
    make_operation(letters=DeadLetter.objects.all(), by="test")
    assert items_for(biller, "view", OperationItem.objects.all()).count() == 3


# Conditions


def facts(name: str) -> list[Fact]:
    (condition,) = [each for each in conditions() if each.name == name]
    return list(condition.look())


def test_a_new_group_is_told_of_until_somebody_says_something_of_it(told, alias) -> None:
    old = kept()
    row = kept(task_name="shop.tasks.new", failed_at=timezone.now())
    tend(by_hand=True)

    (fact,) = facts("dlq.new_group")

    assert fact.subject == row.fingerprint != old.fingerprint
    assert "shop.tasks.new" in fact.summary
    assert fact.link == f"/admin/dlq/lettergroup/{row.fingerprint}/change/"
    acknowledge([row.fingerprint], by="test")
    assert facts("dlq.new_group") == []


def test_a_regressed_group_is_told_of(told, alias) -> None:
    row = kept(failed_at=timezone.now())
    tend(by_hand=True)
    resolve([row.fingerprint], by="test")
    assert facts("dlq.regressed_group") == []

    kept(failed_at=timezone.now() + timedelta(seconds=1))
    tend(by_hand=True)

    assert [fact.subject for fact in facts("dlq.regressed_group")] == [row.fingerprint]


def test_growth_is_told_of_by_rate_and_not_by_number(told, alias) -> None:
    told(ALERTS={"GROWTH_PER_MINUTE": 2, "GROWTH_WINDOW_MINUTES": 2})
    for _ in range(6):
        kept(failed_at=timezone.now() - DAY)
    for _ in range(4):
        kept(failed_at=timezone.now())
    assert facts("dlq.growth") == []

    kept(failed_at=timezone.now())

    (fact,) = facts("dlq.growth")
    assert "more than 2 dead letters a minute, over 2 min" in fact.summary
    assert "shop.tasks.charge 100 %" in fact.detail


def test_an_open_letter_that_is_too_old_is_told_of_and_a_closed_one_is_not(told, alias) -> None:
    row = kept(failed_at=timezone.now() - 8 * DAY)
    kept(failed_at=timezone.now())
    assert [fact.link for fact in facts("dlq.oldest_open")] == [f"/admin/dlq/deadletter/{row.pk}/change/"]

    given_up(row)

    assert facts("dlq.oldest_open") == []


def test_the_size_of_the_store_is_told_of(told, alias) -> None:
    kept()
    assert facts("dlq.store_size") == []

    told(ALERTS={"STORE_MEGABYTES": 0.001})

    (fact,) = facts("dlq.store_size")
    assert "larger than 0.001 MB" in fact.summary
    told(ALERTS={"STORE_MEGABYTES": None, "STORE_LETTERS": None})
    assert facts("dlq.store_size") == []


def test_an_operation_that_paused_by_itself_is_told_of(told, alias) -> None:
    operation = make_operation(letters=[kept().pk], by="test")
    by_person = make_operation(letters=[], by="test")
    for each, because in ((operation, PausedBecause.FAILURES), (by_person, PausedBecause.PERSON)):
        Operation.objects.filter(pk=each.pk).update(
            state=OperationState.PAUSED, paused_because=because, pause_detail="3 of 10 failed"
        )

    (fact,) = facts("dlq.replay_paused")

    assert (fact.subject, fact.detail) == (str(operation.pk), "3 of 10 failed")


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
def test_each_look_is_two_statements_at_most(told, alias) -> None:
    kept(failed_at=timezone.now() - 8 * DAY)
    tend(by_hand=True)
    for condition in conditions():
        if condition.name == "dlq.ingest_stuck":
            continue
        connections[alias].ensure_connection()
        with CaptureQueriesContext(connections[alias]) as statements:
            list(condition.look())
        assert 1 <= len(statements) <= 2, condition.name
