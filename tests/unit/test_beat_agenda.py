"""The agenda: what is due next, and what a schedule that was read again does to it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django_celery_beat.clockedschedule import clocked

from beat_leader.agenda import Agenda
from beat_leader.almanac import Almanac
from beat_leader.due import BadSchedule
from beat_leader.entry import Entry
from beat_leader.ticks import Cursor

NOW = 1_000_000


class Every:
    """`when` is a period in milliseconds; 0 is nonsense."""

    def __init__(self) -> None:
        self.asked = 0

    def definition(self, entry: Entry) -> str:
        return str(entry.when)

    def next_due(self, entry: Entry, *, anchor_ms: int, after_ms: int) -> int | None:
        self.asked += 1
        if not entry.when:
            raise BadSchedule(entry.name, "never")
        period = int(entry.when)
        return anchor_ms + ((after_ms - anchor_ms) // period + 1) * period


@pytest.fixture
def agenda():
    return Agenda(Every())


def entries(**whens: int) -> dict[str, Entry]:
    return {name: Entry(name=name, task="t", when=when) for name, when in whens.items()}


def cursor(name: str, when: int, decided_ms: int, anchor_ms: int = 0) -> Cursor:
    return Cursor(schedule=name, definition=str(when), anchor_ms=anchor_ms, decided_ms=decided_ms)


def due(agenda: Agenda, now_ms: int) -> list[tuple[str, int | None]]:
    return [(line.entry.name, line.next_ms) for line in agenda.overdue(now_ms)]


def test_a_new_schedule_begins_when_it_is_seen(agenda) -> None:
    changes = agenda.begin(entries(a=1000), {}, NOW)

    assert [(each.anchor_ms, each.decided_ms) for each in changes.put] == [(NOW, NOW)]
    assert due(agenda, NOW + 999) == []
    assert due(agenda, NOW + 1000) == [("a", NOW + 1000)]


def test_what_was_due_while_nobody_led_is_overdue(agenda) -> None:
    changes = agenda.begin(entries(a=1000), {"a": cursor("a", 1000, NOW - 5000)}, NOW)

    assert changes.put == ()
    assert due(agenda, NOW) == [("a", NOW - 4000)]


def test_a_schedule_of_another_scheduler_begins_after_its_last_run(agenda) -> None:
    entry = Entry(name="a", task="t", when=1000, anchor=(NOW - 2500) / 1000)

    agenda.begin({"a": entry}, {}, NOW)

    assert due(agenda, NOW) == [("a", NOW - 1500)]


def test_a_redefined_schedule_does_not_catch_up(agenda) -> None:
    agenda.begin(entries(a=1000), {"a": cursor("a", 1000, NOW - 5000)}, NOW)

    changes = agenda.renew(entries(a=700), NOW)

    assert [each.definition for each in changes.put] == ["700"]
    assert due(agenda, NOW + 699) == []
    assert due(agenda, NOW + 700) == [("a", NOW + 700)]


def test_a_schedule_that_is_gone_is_dropped_and_comes_back_new(agenda) -> None:
    agenda.begin(entries(a=1000, b=1000), {}, NOW)

    assert agenda.renew(entries(b=1000), NOW).drop == ("a",)
    assert due(agenda, NOW + 1000) == [("b", NOW + 1000)]
    agenda.decided("b", NOW + 1000)
    agenda.renew(entries(a=1000, b=1000), NOW + 1500)
    assert due(agenda, NOW + 2500) == [("b", NOW + 2000), ("a", NOW + 2500)]


def test_the_store_forgets_cursors_of_schedules_that_are_gone(agenda) -> None:
    assert agenda.begin(entries(b=1000), {"a": cursor("a", 1000, NOW)}, NOW).drop == ("a",)


def test_what_is_not_decided_comes_again_and_what_is_does_not(agenda) -> None:
    agenda.begin(entries(a=1000, b=1000), {}, NOW)

    assert len(due(agenda, NOW + 1000)) == 2
    assert len(due(agenda, NOW + 1000)) == 2
    agenda.decided("a", NOW + 1000)
    assert due(agenda, NOW + 1000) == [("b", NOW + 1000)]
    assert agenda.next_ms() == NOW + 1000


def test_an_interrupted_look_loses_nothing(agenda) -> None:
    agenda.begin(entries(a=1000, b=1000), {}, NOW)

    next(agenda.overdue(NOW + 1000))

    assert len(due(agenda, NOW + 1000)) == 2


def test_reading_again_what_did_not_change_computes_nothing(agenda) -> None:
    agenda.begin(entries(a=1000), {}, NOW)
    asked = agenda._times.asked

    agenda.renew(entries(a=1000), NOW + 10)

    assert agenda._times.asked == asked
    assert due(agenda, NOW + 1000) == [("a", NOW + 1000)]


def test_a_schedule_that_says_nonsense_holds_up_no_other(agenda) -> None:
    changes = agenda.begin(entries(bad=0, a=1000), {"bad": cursor("bad", 0, NOW)}, NOW)

    assert changes.broken == {"bad": "never"}
    assert changes.drop == ()
    assert due(agenda, NOW + 1000) == [("a", NOW + 1000)]


def test_a_schedule_that_is_stopped_or_postponed_waits(agenda) -> None:
    agenda.begin(entries(a=1000, b=1000), {}, NOW)

    agenda.stop("a")
    agenda.postpone("b", NOW + 3000)

    assert due(agenda, NOW + 2999) == []
    assert due(agenda, NOW + 3000) == [("b", NOW + 3000)]


def test_a_single_moment_that_an_operator_changed_to_now_is_due_though_it_is_over_when_seen() -> None:
    agenda = Agenda(Almanac(UTC))

    def once(at_ms: int) -> dict[str, Entry]:
        when = clocked(datetime.fromtimestamp(at_ms / 1000, UTC))
        return {"a": Entry(name="a", task="t", when=when, one_off=True, anchor=at_ms / 1000 - 0.001)}

    agenda.begin(once(NOW + 60_000), {}, NOW)
    agenda.renew(once(NOW + 1000), NOW + 3000)

    assert due(agenda, NOW + 3000) == [("a", NOW + 1000)]
