"""Due times: exactly once each, over every change of the clocks, the same in every process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from time import process_time
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.schedules import BaseSchedule, crontab, schedule
from django_celery_beat.clockedschedule import clocked
from django_celery_beat.tzcrontab import TzAwareCrontab
from hypothesis import given, settings
from hypothesis import strategies as st

from beat_leader.due import BadSchedule, Due, definition_of, due_between, due_of, next_due, next_of
from beat_leader.due.others import EstimatedSeries
from beat_leader.entry import Entry

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE, HOUR, DAY = 60, 3600, 86_400


def at(zone: tzinfo, *parts: int) -> float:
    year, month, day, hour, minute, second = (*parts, 0, 0, 0)[:6]
    return datetime(year, month, day, hour, minute, second, tzinfo=zone).timestamp()


def every_due(when, start: float, end: float, zone: tzinfo, anchor: float = 0.0) -> list[float]:
    found, after = [], start
    while (after := next_due(when, after=after, anchor=anchor, zone=zone) or end + 1) <= end:
        found.append(after)
    return found


def scanned(when: Any, start: int, end: int, zone: tzinfo) -> list[float]:
    """Minute by minute: every hour by elapsed time; fixed hours by the clock on the wall, which is set back
    without running anything twice, and set forward over what is then due at once."""
    sets = (when.minute, when.hour, when.day_of_month, when.month_of_year, when.day_of_week)

    def fits(wall: datetime) -> bool:
        parts = (wall.minute, wall.hour, wall.day, wall.month, wall.isoweekday() % 7)
        return all(part in each for part, each in zip(parts, sets, strict=True))

    def wall_at(moment: int) -> datetime:
        return datetime.fromtimestamp(moment, zone).replace(tzinfo=None, fold=0)

    found = []
    warm_up = start - start % MINUTE - 26 * HOUR
    highest = wall_at(warm_up)
    for moment in range(warm_up + MINUTE, end + 1, MINUTE):
        wall = wall_at(moment)
        if len(when.hour) == 24:
            due = fits(wall)
        else:
            due = False
            while highest < wall:
                highest += timedelta(minutes=1)
                due = due or fits(highest)
        if due and moment > start:
            found.append(float(moment))
    return found


CHANGES = [
    ("Europe/Berlin", (2026, 3, 29)),
    ("Europe/Berlin", (2026, 10, 25)),
    ("America/New_York", (2026, 3, 8)),
    ("America/New_York", (2026, 11, 1)),
    ("Australia/Lord_Howe", (2026, 4, 5)),
    ("Australia/Lord_Howe", (2026, 10, 4)),
    ("America/Sao_Paulo", (2018, 11, 4)),
    ("America/Sao_Paulo", (2018, 2, 18)),
    ("Asia/Kathmandu", (2026, 3, 29)),
    ("Pacific/Apia", (2011, 12, 31)),
    ("America/Havana", (2026, 11, 1)),
]
CRONS = [
    crontab(minute=0),
    crontab(minute=30),
    crontab(minute=30, hour=2),
    crontab(minute=0, hour=0),
    crontab(minute="*/20", hour="1-3"),
    crontab(minute=15, hour="0,2,23", day_of_week="sun"),
    crontab(minute=45, day_of_month="1-31/2"),
]


@pytest.mark.parametrize(("name", "day"), CHANGES)
def test_each_due_time_of_a_crontab_comes_exactly_once_over_a_change_of_the_clocks(name, day):
    zone = ZoneInfo(name)
    noon = int(at(UTC, *day, 12))
    for when in CRONS:
        start, end = noon - 2 * DAY, noon + 2 * DAY
        expected = scanned(when, start, end, zone)
        assert every_due(when, start, end, zone) == expected, when
        whole = due_between(when, after=start, until=end, anchor=0, zone=zone, keep=3)
        assert list(whole.times) == expected[-3:]
        assert whole.count == len(expected)


def test_a_daily_time_that_the_clocks_skip_is_due_at_the_end_of_the_gap():
    when = crontab(minute=30, hour=2)
    found = every_due(when, at(BERLIN, 2026, 3, 28, 12), at(BERLIN, 2026, 3, 30, 12), BERLIN)
    assert found == [at(BERLIN, 2026, 3, 29, 3, 0), at(BERLIN, 2026, 3, 30, 2, 30)]


def test_a_daily_time_that_comes_twice_is_due_the_first_time():
    when = crontab(minute=30, hour=2)
    found = every_due(when, at(BERLIN, 2026, 10, 24, 12), at(BERLIN, 2026, 10, 26, 12), BERLIN)
    assert found == [at(BERLIN, 2026, 10, 25, 2, 30), at(BERLIN, 2026, 10, 26, 2, 30)]


def test_an_hourly_crontab_goes_by_elapsed_time():
    for day in ((2026, 3, 29), (2026, 10, 25)):
        start = at(BERLIN, *day)
        found = every_due(crontab(minute=30), start, start + 8 * HOUR, BERLIN)
        assert found == [start + 1800 + number * HOUR for number in range(8)]


crons = st.builds(
    crontab,
    minute=st.sets(st.integers(0, 59), min_size=1, max_size=4),
    hour=st.one_of(st.just("*"), st.sets(st.integers(0, 23), min_size=1, max_size=5)),
    day_of_week=st.one_of(st.just("*"), st.sets(st.integers(0, 6), min_size=1)),
    day_of_month=st.one_of(st.just("*"), st.sets(st.integers(1, 28), min_size=1)),
    month_of_year=st.one_of(st.just("*"), st.sets(st.integers(1, 12), min_size=6)),
)
zones = st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/New_York", "Asia/Kathmandu"])
moments = st.integers(1_577_836_800, 1_893_456_000).map(lambda second: second + 0.25)


@settings(max_examples=60, deadline=None)
@given(when=crons, name=zones, after=moments, days=st.integers(1, 200), keep=st.integers(1, 50))
def test_what_was_due_between_is_what_was_due_next_again_and_again(when, name, after, days, keep):
    zone, until = ZoneInfo(name), after + days * 40_000
    one_by_one = every_due(when, after, until, zone)
    whole = due_between(when, after=after, until=until, anchor=0, zone=zone, keep=keep)
    assert one_by_one == sorted(set(one_by_one))
    assert list(whole.times) == one_by_one[-keep:]
    before = one_by_one[:-keep]
    assert whole.earlier_count == len(before)
    assert (whole.earlier_first, whole.earlier_last) == ((before[0], before[-1]) if before else (None, None))


@settings(max_examples=15, deadline=None)
@given(when=crons, name=zones, after=moments)
def test_a_crontab_is_due_when_a_scan_of_all_minutes_finds_it(when, name, after):
    zone, start = ZoneInfo(name), int(after)
    assert every_due(when, start, start + 4 * DAY, zone) == scanned(when, start, start + 4 * DAY, zone)


@settings(max_examples=60, deadline=None)
@given(when=crons, after=moments)
def test_where_no_clock_is_set_a_crontab_is_due_when_celery_says_so(when, after):
    found = next_due(when, after=after, anchor=0, zone=UTC)
    moment = datetime.fromtimestamp(after, UTC)
    when.nowfun, when.tz = (lambda: moment), UTC
    assert found is not None
    assert found == (moment + when.remaining_estimate(moment)).timestamp()


def test_a_date_that_never_comes_is_never_due():
    never: Any = crontab(day_of_month=29, month_of_year=2)
    never.day_of_month = {31}
    assert next_due(never, after=0, anchor=0, zone=UTC) is None
    assert due_between(never, after=0, until=9 * DAY, anchor=0, zone=UTC, keep=1) == Due()


def test_the_longest_wait_is_waited_for():
    leap_monday = crontab(minute=0, hour=0, day_of_month=29, month_of_year=2, day_of_week="mon")
    assert next_due(leap_monday, after=at(UTC, 2072, 3, 1), anchor=0, zone=UTC) == at(UTC, 2112, 2, 29)


def test_a_crontab_with_a_zone_of_its_own_keeps_to_it():
    own = TzAwareCrontab(minute=0, hour=3, tz=ZoneInfo("Asia/Kathmandu"))
    found = next_due(own, after=at(UTC, 2026, 1, 1), anchor=0, zone=BERLIN)
    assert found == at(ZoneInfo("Asia/Kathmandu"), 2026, 1, 2, 3)
    assert definition_of(own, zone=BERLIN) == definition_of(own, zone=UTC)
    assert definition_of(own, zone=UTC) != definition_of(crontab(minute=0, hour=3), zone=UTC)


def test_a_crontab_of_an_app_keeps_to_the_zone_that_it_is_asked_with():
    plain = crontab(minute=0, hour=3, app=Celery("zones", set_as_current=False))
    assert next_due(plain, after=at(UTC, 2026, 1, 1, 12), anchor=0, zone=BERLIN) == at(BERLIN, 2026, 1, 2, 3)


@settings(max_examples=60, deadline=None)
@given(
    every=st.integers(1_000, 90_000_000_000),
    anchor=moments,
    later=st.integers(0, 10_000_000),
    span=st.integers(0, 500),
    keep=st.integers(1, 20),
)
def test_an_interval_counts_from_its_anchor_whatever_was_late(every, anchor, later, span, keep):
    when, after = schedule(timedelta(microseconds=every)), round(anchor + later / 1000, 3)
    until = round(after + span * every / 1_000_000, 3)
    found = due_between(when, after=after, until=until, anchor=anchor, zone=UTC, keep=keep)
    expected = every_due(when, after, until, UTC, anchor)
    assert list(found.times) == expected[-keep:]
    assert found.count == len(expected)
    for due in found.times:
        number = round((due - anchor) * 1_000_000 / every)
        assert number >= 1
        assert abs(due - anchor - number * every / 1_000_000) < 0.0011
        assert round(due * 1000) / 1000 == due


def test_the_missed_times_of_years_are_counted_and_not_listed():
    began = process_time()
    for when, count in ((schedule(1), 3 * 365 * DAY), (crontab(), 3 * 365 * 1440)):
        found = due_between(when, after=0, until=3 * 365 * DAY, anchor=0, zone=BERLIN, keep=5)
        assert (found.count, len(found.times)) == (count, 5)
    assert process_time() - began < 2


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (timedelta(hours=1), [(15, 0), (16, 0)]),
        (timedelta(minutes=90), [(15, 0), (16, 0)]),
        (timedelta(minutes=5), [(14, 15), (14, 20)]),
    ],
    ids=["hour", "ninety-minutes", "five-minutes"],
)
def test_a_relative_interval_is_rounded_as_celery_rounds_it(every, expected):
    anchor = at(BERLIN, 2026, 5, 5, 14, 10, 30)
    when: Any = schedule(every, relative=True)
    found = every_due(when, anchor, anchor + 2 * DAY, BERLIN, anchor)[:2]
    assert found == [at(BERLIN, 2026, 5, 5, *wall) for wall in expected]
    last = datetime.fromtimestamp(anchor, BERLIN)
    when.nowfun = lambda: last
    assert found[0] == (last + when.remaining_estimate(last)).timestamp()


def test_a_relative_interval_of_days_is_due_at_local_midnights():
    anchor = at(BERLIN, 2026, 3, 27, 14, 10)
    found = every_due(schedule(timedelta(days=1), relative=True), anchor, anchor + 4 * DAY, BERLIN, anchor)
    assert found == [at(BERLIN, 2026, 3, day) for day in (28, 29, 30, 31)]


@pytest.mark.parametrize("every", [0, -5, 0.0001], ids=["zero", "negative", "too-short"])
def test_an_interval_of_no_length_is_refused_by_name(every):
    with pytest.raises(BadSchedule, match="schedule odd: an interval of"):
        next_due(schedule(timedelta(seconds=every)), after=0, anchor=0, zone=UTC, name="odd")


def test_a_clocked_schedule_is_due_once():
    when = clocked(datetime(2026, 5, 5, 12, tzinfo=UTC))
    due = at(UTC, 2026, 5, 5, 12)
    assert every_due(when, 0, due + DAY, BERLIN) == [due]
    assert due_between(when, after=due - 1, until=due, anchor=0, zone=UTC, keep=1).times == (due,)
    assert not due_between(when, after=due, until=due + 1, anchor=0, zone=UTC, keep=1)


class Tides(BaseSchedule):
    """As solar ones: the next event after the last run, from what `now` says."""

    def remaining_estimate(self, last_run_at):
        since = last_run_at.timestamp()
        return timedelta(seconds=(since // 44_714 + 1) * 44_714 - self.now().timestamp())


class WhenFull(BaseSchedule):
    """The project's own idea."""

    full = False

    def is_due(self, last_run_at):
        return self.full, 7.5


class Failing(BaseSchedule):
    """Its code has an error."""

    def is_due(self, last_run_at):
        raise RuntimeError("no tide table")


def test_a_schedule_of_ones_own_is_due_as_it_estimates():
    found = every_due(Tides(), 1_000_000.25, 1_200_000, UTC)
    assert found == [44_714.0 * number for number in (23, 24, 25, 26)]
    whole = due_between(Tides(), after=1_000_000.25, until=1_200_000, anchor=0, zone=UTC, keep=1)
    assert (whole.times, whole.earlier_count) == ((found[-1],), 3)


def test_a_schedule_with_its_own_is_due_is_asked_at_that_time():
    when = WhenFull()
    assert next_due(when, after=100, anchor=0, zone=UTC) == 108
    assert not due_between(when, after=100, until=120.5, anchor=0, zone=UTC, keep=1)
    when.full = True
    assert due_between(when, after=100, until=120.5, anchor=0, zone=UTC, keep=1).times == (120,)


@pytest.mark.parametrize("when", [Failing(), "every now and then", None], ids=["failing", "text", "none"])
def test_what_cannot_say_when_it_is_due_is_an_error_with_its_name(when):
    for ask in (
        lambda: next_due(when, after=1, anchor=0, zone=UTC, name="tides"),
        lambda: due_between(when, after=1, until=9, anchor=0, zone=UTC, keep=1, name="tides"),
        lambda: definition_of(None, zone=UTC, name="tides"),
    ):
        with pytest.raises(BadSchedule, match="schedule tides"):
            ask()


def test_a_definition_is_the_same_in_every_process_and_other_for_other_times():
    zone = ZoneInfo("Europe/Berlin")
    assert definition_of(crontab(minute="30,0", hour=3), zone=zone) == definition_of(
        crontab(minute=[0, 30], hour="3"), zone=zone
    )
    others = [
        definition_of(when, zone=zone, starts=starts)
        for when, starts in [
            (crontab(minute=1), None),
            (crontab(hour=1), None),
            (schedule(60), None),
            (schedule(60), 5.0),
            (schedule(61), None),
            (schedule(60, relative=True), None),
            (clocked(datetime(2026, 1, 1, tzinfo=UTC)), None),
            (Tides(), None),
            (WhenFull(), None),
        ]
    ]
    assert len(set(others)) == len(others)


def test_start_and_end_of_an_entry_bound_its_due_times():
    entry = Entry(name="x", task="t", when=schedule(60), starts=1000.0, ends=1180.0)
    found, after = [], 0.0
    while (due := next_of(entry, after=after, anchor=17.0, zone=UTC)) is not None:
        found.append(due)
        after = due
    assert found == [1000, 1060, 1120]
    assert due_of(entry, after=0, until=2000, anchor=17.0, zone=UTC, keep=9).times == (1000, 1060, 1120)


def test_ten_thousand_crontabs_are_asked_in_less_than_a_second():
    whens = [crontab(minute=n % 60, hour=n % 24, day_of_week=n % 7) for n in range(500)]
    began = process_time()
    for _ in range(20):
        for when in whens:
            next_due(when, after=1_796_000_000, anchor=0, zone=BERLIN)
    assert process_time() - began < 1


class Sunrises(BaseSchedule):
    """Computed a little differently each time, as astronomers do."""

    def remaining_estimate(self, last_run_at):
        wobble = -0.0001 if last_run_at.microsecond else 0.0003
        number = (last_run_at.timestamp() - wobble) // 44_714 + 1
        return timedelta(seconds=number * 44_714 + wobble - self.now().timestamp())


def test_an_event_that_is_computed_anew_each_time_is_not_due_twice():
    found = EstimatedSeries(Sunrises(), UTC, apart=1).between(1_000_000.25, 1_100_000, 9).times
    assert found == (44_714.0 * 23, 44_714.0 * 24 + 1)


class Holidays(crontab):
    """A crontab with arguments and a day off of its own."""

    def __init__(self, holidays, **fields):
        super().__init__(**fields)
        self.holidays = holidays

    def remaining_estimate(self, last_run_at, *args):
        left = super().remaining_estimate(last_run_at, *args)
        while (self.now() + left).day in self.holidays:
            left += timedelta(days=1)
        return left


def test_a_subclass_that_is_due_otherwise_is_asked_itself():
    when = Holidays([2, 3], minute=0, hour=12, app=Celery("days", set_as_current=False))
    found = every_due(when, at(UTC, 2026, 1, 1), at(UTC, 2026, 1, 6), UTC)
    assert found == [at(UTC, 2026, 1, day, 12) for day in (1, 4, 5)]
