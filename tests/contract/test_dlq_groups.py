"""Letters are counted in their groups once each, on every database, whoever dies and however many count."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction
from django.db.models import Sum
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dlq.groups import counting, duty, figures, triage
from dlq.groups.counting import count_new_letters
from dlq.groups.forgetting import HOURS_KEPT, forget_old_figures
from dlq.groups.releases import has_run, known_releases, note_release, replay_due, wake_snoozed
from dlq.groups.states import GroupState
from dlq.models import DeadLetter, GroupFacet, GroupHour, LetterGroup, SeenRelease
from dlq.rows import letter_row
from tests.helpers.dlq_databases import KINDS, database_url, letters_in
from tests.helpers.dlq_letters import FAILED_AT, attempt, letter
from tests.helpers.mishaps import within
from tests.helpers.wait import wait_until


@pytest.fixture(params=KINDS)
def alias(request, tmp_path, settings, django_db_blocker) -> Iterator[str]:
    with django_db_blocker.unblock(), letters_in(request.param, request, tmp_path) as name:
        settings.DLQ = {"DATABASE": name}
        yield name


def kept(count: int = 1, *, message: str = "declined", **fields: Any) -> str:
    """Letters of one cause; returns their fingerprint."""
    rows = [
        letter_row(
            letter(attempts=(attempt(1, message=message),), **fields),
            keys=(),
            now=fields.get("failed_at", FAILED_AT),
        )
        for _ in range(count)
    ]
    DeadLetter.objects.bulk_create(rows)
    return rows[0].fingerprint


def counts_are_right() -> bool:
    """Every count says what the letters say that are counted."""
    counted = DeadLetter.objects.filter(group__isnull=False).count()
    sums = {
        counted,
        LetterGroup.objects.aggregate(n=Sum("letters"))["n"] or 0,
        GroupHour.objects.aggregate(n=Sum("letters"))["n"] or 0,
        *(
            GroupFacet.objects.filter(facet=facet).aggregate(n=Sum("letters"))["n"] or 0
            for facet in ("task_name", "worker")
        ),
    }
    return len(sums) == 1


def test_letters_are_counted_by_group_hour_and_facet(alias) -> None:
    fingerprint = kept(2, message="order 12 declined", worker="w1")
    assert (
        kept(message="order 13 declined", worker="w2", failed_at=FAILED_AT + timedelta(hours=2))
        == fingerprint
    )
    other = kept(message="no such card")

    counted = count_new_letters()

    assert (counted.letters, set(counted.new_groups)) == (4, {fingerprint, other})
    group = LetterGroup.objects.get(pk=fingerprint)
    assert (group.letters, group.task_name, group.title) == (3, "shop.tasks.charge", "order # declined")
    assert (group.first_seen_at, group.last_seen_at) == (FAILED_AT, FAILED_AT + timedelta(hours=2))
    assert getattr(group.sample, "worker", None) == "w2"
    assert {each.value: each.letters for each in figures.facets(fingerprint)["worker"]} == {"w1": 2, "w2": 1}
    trend = figures.trends([fingerprint], now=FAILED_AT + timedelta(hours=3))[fingerprint]
    assert (trend.day[-4:], trend.last_24_hours, trend.week[-1]) == ((2, 0, 1, 0), 3, 3)
    assert count_new_letters() == counting.NOTHING
    assert counts_are_right()


def test_later_batches_add_to_the_counts_and_the_newest_are_first(alias) -> None:
    fingerprint = kept(3, failed_at=FAILED_AT - timedelta(hours=1))
    kept(2)

    assert count_new_letters(2).more
    assert LetterGroup.objects.get().first_seen_at == FAILED_AT
    count_new_letters(2)
    assert not count_new_letters(2).more

    group = LetterGroup.objects.get(pk=fingerprint)
    assert (group.letters, group.first_seen_at) == (5, FAILED_AT - timedelta(hours=1))
    assert counts_are_right()


def test_looking_without_new_letters_is_one_query(alias) -> None:
    connections[alias].ensure_connection()

    with CaptureQueriesContext(connections[alias]) as statements:
        count_new_letters()

    assert len(statements) == 1


def test_counters_at_the_same_time_count_each_letter_once(alias) -> None:
    for number in range(8):
        kept(50, message=f"cause {'abcdefgh'[number]}")
    refused: list[Exception] = []

    def count() -> None:
        try:
            while figures.is_behind():
                try:
                    count_new_letters(20)
                except OperationalError as exc:
                    if "lock" not in str(exc).lower():
                        raise
        except Exception as exc:
            refused.append(exc)
        finally:
            connections[alias].close()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert not refused
    assert not figures.is_behind()
    assert set(LetterGroup.objects.values_list("letters", flat=True)) == {50}
    assert counts_are_right()


_DIES_HALFWAY = """
import sys, time
import django, pymysql
pymysql.version_info = (2, 2, 8, "final", 0)
django.setup()
from dlq.groups import counting
def halfway(*args, **kwargs):
    print("halfway", flush=True)
    time.sleep(60)
setattr(counting, sys.argv[1], halfway)
counting.count_new_letters()
"""


@pytest.mark.parametrize("before", ["add_counts", "_regress"])
def test_a_counter_that_is_killed_halfway_leaves_no_count_behind(
    alias, before, request, tmp_path, settings
) -> None:
    fingerprint = kept(5)
    url = database_url(alias.removeprefix("dlq_"), request, tmp_path)
    settings.DLQ = {"DATABASE": alias}
    process = subprocess.Popen(
        [sys.executable, "-c", _DIES_HALFWAY, before],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "TEST_DATABASE_URL": url},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"halfway\n"
        assert not LetterGroup.objects.exists()
        if alias != "dlq_sqlite":  # A reader there, and here another counter, goes away at once.
            with within(1):
                assert count_new_letters().busy
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()

    # The server may notice a little later that its client is gone.
    wait_until(lambda: count_new_letters().letters == 5)

    assert LetterGroup.objects.get(pk=fingerprint).letters == 5
    assert counts_are_right()


def held(alias: str, change: Callable[[], Any]) -> tuple[threading.Thread, threading.Event]:
    """Another's transaction that changes something and does not end."""
    changed, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic(using=alias):
            change()
            changed.set()
            may_end.wait(30)
        connections[alias].close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert changed.wait(10)
    return thread, may_end


@pytest.mark.parametrize("what", ["letter", "group"])
def test_the_duty_waits_for_no_lock(alias, what) -> None:
    now = timezone.now()
    fingerprint = kept(failed_at=now)
    count_new_letters()
    kept(failed_at=now)
    other = kept(message="another cause", failed_at=now)
    thread, may_end = held(
        alias,
        {
            "letter": lambda: DeadLetter.objects.filter(fingerprint=fingerprint).update(replay_error="x"),
            "group": lambda: LetterGroup.objects.filter(pk=fingerprint).update(note="x"),
        }[what],
    )
    duty._memory.not_before = 0.0
    try:
        with within(1.0):
            duty.groups_duty(None)
        if alias != "dlq_sqlite":
            assert set(LetterGroup.objects.values_list("pk", "letters")) == {(fingerprint, 1), (other, 1)}
    finally:
        may_end.set()
        thread.join()

    duty._memory.not_before = 0.0
    duty.groups_duty(None)

    assert set(LetterGroup.objects.values_list("pk", "letters")) == {(fingerprint, 2), (other, 1)}
    assert counts_are_right()


def counted_group(**fields: Any) -> str:
    fingerprint = kept(**fields)
    count_new_letters()
    return fingerprint


def state_of(fingerprint: str) -> str:
    return LetterGroup.objects.get(pk=fingerprint).state


def soon() -> datetime:
    return timezone.now() + timedelta(seconds=30)


def test_only_a_failure_after_it_was_resolved_regresses_a_group(alias) -> None:
    fingerprint = counted_group()
    assert triage.resolve([fingerprint], by="ann") == 1

    kept()
    assert count_new_letters().regressed == ()
    assert state_of(fingerprint) == GroupState.RESOLVED

    kept(failed_at=soon())
    assert count_new_letters().regressed == (fingerprint,)
    assert state_of(fingerprint) == GroupState.REGRESSED


def test_a_group_resolved_in_a_release_regresses_by_that_release_or_after_it_ran(alias) -> None:
    older, newer = counted_group(message="a"), counted_group(message="b")
    triage.resolve([older, newer], by="ann", in_release="2")

    kept(message="a", release="1", failed_at=soon())
    kept(message="b", release="2", failed_at=soon())
    assert count_new_letters().regressed == (newer,)

    note_release("2", now=soon() + timedelta(seconds=30))
    kept(message="a", release="1", failed_at=soon())
    assert count_new_letters().regressed == ()
    kept(message="a", release="1", failed_at=soon() + timedelta(minutes=5))
    assert count_new_letters().regressed == (older,)


def test_what_people_say_is_compare_and_set(alias) -> None:
    fingerprint = counted_group()

    assert triage.acknowledge([fingerprint], by="ann") == 1
    assert triage.acknowledge([fingerprint], by="bob") == 0
    assert triage.resolve([fingerprint], by="bob", was=GroupState.OPEN) == 0
    assert triage.snooze([fingerprint, "unknown"], by="ann", until=soon()) == 1
    assert triage.assign([fingerprint], owner="carol", by="ann") == 1
    assert triage.note([fingerprint], text="see the wiki", by="ann") == 1
    with pytest.raises(ValueError, match="over"):
        triage.snooze([fingerprint], by="ann", until=timezone.now() - timedelta(days=1))
    with pytest.raises(ValueError, match="one of them"):
        triage.snooze([fingerprint], by="ann")
    with pytest.raises(ValueError, match="release"):
        triage.resolve([fingerprint], by="ann", replay=True)

    group = LetterGroup.objects.get()
    assert (group.state, group.state_by, group.owner, group.note) == (
        "snoozed",
        "ann",
        "carol",
        "see the wiki",
    )
    assert triage.reopen([fingerprint], by="ann") == 1
    assert LetterGroup.objects.get().snoozed_until is None


def test_snoozed_groups_wake_by_time_or_release(alias) -> None:
    timed, released, sleeping = (
        counted_group(message="a"),
        counted_group(message="b"),
        counted_group(message="c"),
    )
    triage.snooze([timed], by="ann", until=soon())
    triage.snooze([released], by="ann", release="2")
    triage.snooze([sleeping], by="ann", release="3")
    assert wake_snoozed() == 0

    note_release("2")

    assert wake_snoozed(now=soon() + timedelta(seconds=1)) == 2
    assert [state_of(each) for each in (timed, released, sleeping)] == ["open", "open", "snoozed"]
    with pytest.raises(ValueError, match="has run already"):
        triage.snooze([timed], by="ann", release="2")


def test_a_release_has_run_when_the_one_before_is_silent(alias) -> None:
    start = timezone.now()
    note_release("1", now=start)
    note_release("2", now=start + timedelta(seconds=30))
    note_release("1", now=start + timedelta(seconds=60))

    assert (has_run("1"), has_run("2")) == (True, False)
    note_release("2", now=start + timedelta(seconds=200))

    assert has_run("2")
    assert known_releases() == ["2", "1"]
    assert SeenRelease.objects.get(pk="2").first_at == start + timedelta(seconds=30)


def test_a_replay_that_waits_for_a_release_begins_once_for_each_resolve(alias) -> None:
    fingerprint = counted_group()
    made: list[str] = []
    waited: list[OperationalError] = []  # SQLite's one lock: the next turn tries again.

    def make(group: LetterGroup) -> Any:
        time.sleep(0.1)
        made.append(group.pk)
        return group

    def fire() -> None:
        try:
            replay_due(make=make)
        except OperationalError as exc:
            waited.append(exc)
        finally:
            connections[alias].close()

    triage.resolve([fingerprint], by="ann", in_release="2", replay=True)
    assert replay_due(make=make) == []
    note_release("2")
    threads = [threading.Thread(target=fire) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    replay_due(make=make)
    assert made == [fingerprint]
    assert all("lock" in str(exc).lower() for exc in waited)

    triage.resolve([fingerprint], by="ann", in_release="2", replay=True)
    replay_due(make=make)
    assert made == [fingerprint] * 2


def test_a_replay_whose_operation_could_not_be_made_is_still_due(alias) -> None:
    fingerprint = counted_group()
    triage.resolve([fingerprint], by="ann", in_release="2", replay=True)
    note_release("2")

    def fails(group: LetterGroup) -> Any:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        replay_due(make=fails)

    assert LetterGroup.objects.get().replay_on_release


def test_open_counts_stop_at_their_cap_in_one_query(alias) -> None:
    many, few = counted_group(count=5, message="a"), counted_group(count=2, message="b")

    with CaptureQueriesContext(connections[alias]) as statements:
        counts = figures.open_counts([many, few, "unknown"], cap=3)

    assert (counts, len(statements)) == ({many: 4, few: 2, "unknown": 0}, 1)
    assert [figures.shown_count(each, cap=3) for each in (counts[many], counts[few])] == ["3+", "2"]


def test_other_groupings_add_up_over_groups(alias) -> None:
    kept(2, message="a", queue="payments", release="1")
    kept(message="b", queue="payments", release="2")
    kept(message="c", queue="slow", release="1", task_name="shop.tasks.ship")
    count_new_letters()

    triage.resolve([LetterGroup.objects.get(task_name="shop.tasks.ship").pk], by="ann")

    def rows(facet: str, **options: Any) -> list[tuple[str, int, int]]:
        return [(r.value, r.letters, r.todo) for r in figures.by_facet(facet, **options).rows]

    assert rows("queue") == [("payments", 3, 2), ("slow", 1, 0)]
    assert rows("release") == [("1", 3, 1), ("2", 1, 1)]
    assert rows("queue", groups=figures.listed(task="shop.tasks.ship")) == [("slow", 1, 0)]
    assert figures.by_facet("queue", most=1).more
    assert figures.totals()["open"] == 2
    assert len(figures.listed(state=figures.TODO)) == 2


def test_old_figures_go_and_groups_stay(alias) -> None:
    old = timezone.now() - HOURS_KEPT - timedelta(days=2)
    fingerprint = counted_group(failed_at=old)
    kept(failed_at=timezone.now(), worker="w2")
    count_new_letters()

    assert forget_old_figures(alias=alias) == 2
    assert forget_old_figures(alias=alias) == 0

    assert LetterGroup.objects.get(pk=fingerprint).letters == 2
    assert [each.value for each in figures.facets(fingerprint)["worker"]] == ["w2"]
