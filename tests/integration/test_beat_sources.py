"""Where schedules are kept: the code, and the tables of django-celery-beat on real databases."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from time import perf_counter, process_time
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.beat import BeatLazyFunc
from celery.schedules import crontab, schedule
from django.core.management import call_command
from django.db import connections
from django_celery_beat.clockedschedule import clocked
from django_celery_beat.models import (
    ClockedSchedule,
    CrontabSchedule,
    IntervalSchedule,
    PeriodicTask,
    PeriodicTasks,
)

from beat_leader.due import next_of
from beat_leader.entry import Misfire, Source, SourceUnavailable
from beat_leader.sources import chosen_source
from beat_leader.sources.choice import NoSuchSource
from beat_leader.sources.code import CodeSource
from beat_leader.sources.database import DatabaseSource
from tests.helpers.databases import database_from_url
from tests.helpers.dlq_databases import database_alias_for, database_url

NOW = datetime.now(UTC).replace(microsecond=0)
_ALIAS = "schedules"


class Router:
    """Puts django-celery-beat where the test wants it."""

    def db_for_read(self, model, **hints):
        return _ALIAS if model._meta.app_label == "django_celery_beat" else None

    db_for_write = db_for_read


@pytest.fixture
def app() -> Celery:
    made = Celery("sources", broker="memory://", set_as_current=False)
    made.conf.update(timezone="Europe/Berlin", result_expires=None)
    return made


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(request, tmp_path_factory, django_db_blocker) -> Iterator[None]:
    """Tables of django-celery-beat, under an alias of their own."""
    entry = database_from_url(database_url(request.param, request, tmp_path_factory.mktemp("schedules")))
    if request.param == "sqlite":
        entry["OPTIONS"] = {"init_command": "PRAGMA synchronous = OFF"}
    with django_db_blocker.unblock(), database_alias_for(_ALIAS, entry):
        call_command("migrate", "django_celery_beat", database=_ALIAS, verbosity=0)
        yield


@pytest.fixture
def tables(server, settings, django_db_blocker) -> Iterator[None]:
    settings.DATABASE_ROUTERS = [f"{__name__}.Router"]
    with django_db_blocker.unblock():
        with connections[_ALIAS].cursor() as cursor:
            for model in (PeriodicTask, CrontabSchedule, IntervalSchedule, ClockedSchedule, PeriodicTasks):
                cursor.execute(f"DELETE FROM {model._meta.db_table}")
        yield


@pytest.fixture
def source(tables, app) -> Iterator[DatabaseSource]:
    made = DatabaseSource(app)
    yield made
    made.close()


def every(seconds: int) -> IntervalSchedule:
    return IntervalSchedule.objects.get_or_create(every=seconds, period="seconds")[0]


def cron(**fields) -> CrontabSchedule:
    return CrontabSchedule.objects.create(timezone="Europe/Berlin", **fields)


def a_task(name: str, **columns) -> PeriodicTask:
    if not {"crontab", "clocked"} & set(columns):
        columns.setdefault("interval", every(60))
    return PeriodicTask.objects.create(name=name, task="shop.report", **columns)


def test_every_enabled_row_is_an_entry_however_far_its_hour_is(source):
    a_task("off", enabled=False)
    a_task(
        "full",
        args='["a", 1]',
        kwargs='{"b": 2}',
        queue="slow",
        priority=0,
        headers='{"h": 1}',
        expire_seconds=30,
        start_time=NOW,
    )
    for hour in (1, 7, 13, 19):
        a_task(f"at {hour}", crontab=cron(minute="5", hour=str(hour)))
    a_task("once", clocked=ClockedSchedule.objects.create(clocked_time=NOW), one_off=True, expires=NOW)
    a_task("once, and it ran", one_off=True, total_run_count=1)
    found = source.entries()
    assert set(found) == {"full", "once", *(f"at {hour}" for hour in (1, 7, 13, 19))}
    full = found["full"]
    assert (full.task, full.args, full.kwargs) == ("shop.report", ("a", 1), {"b": 2})
    assert full.options == {"queue": "slow", "priority": 0, "headers": {"h": 1}, "expires": 30}
    assert full.when == schedule(60)
    assert (full.starts, full.kept) == (NOW.timestamp(), "database")
    assert next_of(full, after=0, anchor=5.0, zone=UTC) == NOW.timestamp()
    once = found["once"]
    assert once.when == clocked(NOW)
    assert (once.one_off, once.ends, once.options["expires"]) == (True, NOW.timestamp(), NOW)
    assert once.anchor is not None
    assert once.anchor < NOW.timestamp()
    assert found["at 7"].when.tz == ZoneInfo("Europe/Berlin")


def test_a_broken_row_is_left_out_told_once_and_stops_no_other(source, caplog):
    a_task("good")
    a_task("bad json", args="[1,")
    a_task("no list", args='{"a": 1}')
    a_task("bad crontab", crontab=cron(minute="77"))
    a_task("bad zone", crontab=cron(minute="7"))
    a_task("no length", interval=every(0))
    a_task("no schedule")
    PeriodicTask.objects.filter(name="no schedule").update(interval=None)
    with connections[_ALIAS].cursor() as cursor:
        cursor.execute(
            "UPDATE django_celery_beat_crontabschedule SET timezone = 'Mars/Olympus' WHERE minute = '7'"
        )
    with caplog.at_level(logging.ERROR, "beat_leader"):
        assert set(source.entries()) == {"good"}
        assert set(source.entries()) == {"good"}
    assert set(source.broken) == {
        "bad json",
        "no list",
        "bad crontab",
        "bad zone",
        "no length",
        "no schedule",
    }
    assert len(caplog.records) == 6
    assert source.broken["no schedule"] == "it has no schedule"


def test_schedules_of_the_code_are_written_once_and_what_the_admin_disabled_stays_so(source, app):
    app.conf.beat_schedule = {
        "daily": {
            "task": "shop.daily",
            "schedule": crontab(minute=5, hour=3),
            "args": (1, 2),
            "options": {"queue": "slow", "expires": 60, "countdown": 2},
        },
        "often": {"task": "shop.often", "schedule": 30, "kwargs": {"a": (1,)}},
        "off": {"task": "shop.off", "schedule": 30},
        "half": {"task": "shop.half", "schedule": 0.5},
        "lazy": {"task": "shop.lazy", "schedule": 30, "args": [BeatLazyFunc(lambda: 1)]},
    }
    source.install()
    PeriodicTask.objects.filter(name="off").update(enabled=False)
    before = PeriodicTasks.last_change()
    source.install()
    assert PeriodicTasks.last_change() == before
    found = source.entries()
    assert set(found) == {"daily", "often", "half", "lazy"}
    assert found["daily"].args == (1, 2)
    assert found["daily"].options == {"queue": "slow", "expires": 60, "countdown": 2}
    assert {name: entry.kept for name, entry in found.items()} == {
        "daily": "database",
        "often": "database",
        "half": "code",
        "lazy": "code",
    }
    app.conf.beat_schedule["off"]["task"] = "shop.other"
    source.install()
    assert PeriodicTasks.last_change() != before
    off = PeriodicTask.objects.get(name="off")
    assert (off.task, off.enabled) == ("shop.other", False)


def test_a_change_is_noticed_and_what_did_not_change_stays_the_same_entry(source):
    a_task("stays")
    moved = a_task("moves")
    first = source.entries()
    assert not source.changed()
    moved.interval = every(90)
    moved.save()
    assert source.changed()
    second = source.entries()
    assert not source.changed()
    assert second["stays"] is first["stays"]
    assert second["moves"].when == schedule(90)


def test_what_nobody_notes_a_bulk_update_or_raw_sql_is_found_by_the_next_reading(source):
    for name in ("bulk", "raw", "of another hour"):
        a_task(name)
    source.entries()
    PeriodicTask.objects.filter(name="bulk").update(interval=every(90))
    far = a_task("far", crontab=cron(minute="0", hour="3"), enabled=False)
    source.entries()
    with connections[_ALIAS].cursor() as cursor:
        cursor.execute("UPDATE django_celery_beat_periodictask SET args = '[7]' WHERE name = 'raw'")
        cursor.execute(
            "UPDATE django_celery_beat_periodictask SET enabled = %s WHERE id = %s", [True, far.id]
        )
        cursor.execute("DELETE FROM django_celery_beat_periodictask WHERE name = 'of another hour'")
    assert not source.changed()

    found = source.entries()
    assert set(found) == {"bulk", "raw", "far"}
    assert found["bulk"].when == schedule(90)
    assert found["raw"].args == (7,)


def test_runs_are_noted_without_a_change_and_what_is_over_is_disabled(source):
    a_task("plain", total_run_count=4)
    a_task("other")
    source.entries()
    ran = NOW.timestamp()
    source.ran({"plain": (ran, 3), "other": (ran + 5, 1)})
    assert not source.changed()
    plain = PeriodicTask.objects.get(name="plain")
    assert plain.total_run_count == 7
    assert timedelta(0) <= plain.last_run_at - NOW < timedelta(seconds=1)

    a_task("once", one_off=True)
    a_task("over", expires=NOW - timedelta(hours=1))
    a_task("not yet over", expires=NOW + timedelta(hours=1))
    source.entries()
    source.ran({"once": (ran, 1)})
    assert source.changed()
    assert set(source.entries()) == {"plain", "other", "not yet over"}
    once = PeriodicTask.objects.get(name="once")
    assert (once.total_run_count, once.last_run_at) == (0, None)


@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_ten_thousand_rows_are_read_again_in_little_time(source):
    crons = CrontabSchedule.objects.bulk_create(
        CrontabSchedule(minute=str(n % 60), hour=str(n // 60), timezone="Europe/Berlin") for n in range(100)
    )
    PeriodicTask.objects.bulk_create(
        PeriodicTask(name=f"number {n}", task="t", crontab=crons[n % 100]) for n in range(10_000)
    )
    first = source.entries()
    began = process_time()
    second = source.entries()
    took = process_time() - began
    assert len(second) == 10_000
    assert all(second[name] is entry for name, entry in first.items())
    assert took < 0.5


@pytest.mark.parametrize("silent", [False, True], ids=["closed", "silent"])
def test_a_database_that_is_down_is_an_error_soon(silent, app, settings, monkeypatch, django_db_blocker):
    monkeypatch.setattr("beat_leader.sources.database._SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if not silent:
            listener.close()
        entry = database_from_url(f"postgresql://nobody@127.0.0.1:{port}/none")
        with django_db_blocker.unblock(), database_alias_for("away", entry):
            monkeypatch.setattr(f"{__name__}._ALIAS", "away")
            settings.DATABASE_ROUTERS = [f"{__name__}.Router"]
            source = DatabaseSource(app)
            began = perf_counter()
            with pytest.raises(SourceUnavailable):
                source.install()
            assert perf_counter() - began < 4
            source.close()


@pytest.mark.parametrize("server", ["postgres"], indirect=True)
def test_a_database_that_cut_the_connection_is_asked_again(source):
    source.install()
    a_task("there")
    source.entries()
    with connections[_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
    assert set(source.entries()) == {"there"}


def test_the_code_is_a_source_by_itself(app, settings):
    settings.BEAT_LEADER = {"SOURCE": "code", "SCHEDULES": {"oft*": {"MISFIRE": "skip"}}}
    app.conf.result_expires = 3600
    app.conf.beat_schedule = {
        "often": {"task": "shop.often", "schedule": 30, "options": {"expire_seconds": 5}},
        "broken": {"task": "shop.broken", "schedule": "now and then"},
        "no length": {"task": "shop.zero", "schedule": 0},
        "no task": {"schedule": 5},
    }
    source = chosen_source(app)
    assert isinstance(source, CodeSource)
    assert isinstance(source, Source)
    assert chosen_source(app) is source
    source.install()
    found = source.entries()
    assert set(found) == {"often", "celery.backend_cleanup"}
    assert found["often"].options == {"expires": 5}
    assert found["often"].policy.misfire is Misfire.SKIP
    assert found["celery.backend_cleanup"].when == crontab("0", "4", "*")
    assert set(source.broken) == {"broken", "no length", "no task"}
    assert not source.changed()
    app.add_periodic_task(10, app.signature("shop.new"), name="new")
    assert source.changed()
    assert "new" in source.entries()


def test_the_database_is_the_source_where_django_celery_beat_is_installed(app, settings):
    settings.BEAT_LEADER = {}
    assert isinstance(chosen_source(app), DatabaseSource)
    settings.BEAT_LEADER = {"SOURCE": "tape"}
    with pytest.raises(NoSuchSource, match="tape"):
        chosen_source(app)
