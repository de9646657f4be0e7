"""Which scheduler `celery beat` runs, without an option and without a setting."""

from __future__ import annotations

import pytest
from celery import Celery

from beat_leader import choosing
from beat_leader.checks import check_beat
from beat_leader.choosing import DEFAULT_SCHEDULER, OURS, choose_ours, chosen_by_project

ANOTHER = "django_celery_beat.schedulers:DatabaseScheduler"


@pytest.fixture
def app():
    made = Celery("chosen", broker="memory://", set_as_current=False)
    yield made
    made.close()


def test_an_app_that_names_no_scheduler_gets_ours(app) -> None:
    choose_ours(app)

    assert app.conf.beat_scheduler == OURS
    assert app.Beat().scheduler_cls == OURS


def test_settings_that_are_read_later_get_it_as_well(app) -> None:
    choose_ours(app)

    app.config_from_object({"broker_url": "memory://", "task_default_queue": "q"}, force=True)

    assert app.conf.beat_scheduler == OURS


def test_the_scheduler_of_the_project_stays_and_is_told(app, monkeypatch, settings) -> None:
    app.conf.beat_scheduler = ANOTHER
    choose_ours(app)
    monkeypatch.setattr("beat_leader.checks.celery_app", lambda: app)

    assert app.conf.beat_scheduler == ANOTHER
    assert chosen_by_project(app) == ANOTHER
    (message,) = check_beat()
    assert message.id == "beat_leader.CH042"
    settings.BEAT_LEADER = {"ENABLED": False}
    assert check_beat() == []


def test_report_mode_changes_nothing(app, settings) -> None:
    settings.HARDENING = {"MODE": "report"}

    choose_ours(app)

    assert app.conf.beat_scheduler == DEFAULT_SCHEDULER


def test_a_beat_that_read_its_settings_before_django_was_set_up_takes_ours(app) -> None:
    early = app.Beat()
    assert early.scheduler_cls == DEFAULT_SCHEDULER

    choose_ours(app)

    assert early.Service(app=app, scheduler_cls=early.scheduler_cls).scheduler_cls == OURS
    assert early.Service(app=app, scheduler_cls=ANOTHER).scheduler_cls == ANOTHER


def test_an_option_of_the_command_line_stays(app, monkeypatch) -> None:
    early = app.Beat()
    choose_ours(app)
    monkeypatch.setattr(choosing, "on_command_line", lambda: True)

    assert early.Service(app=app, scheduler_cls=DEFAULT_SCHEDULER).scheduler_cls == DEFAULT_SCHEDULER


def test_other_apps_keep_the_beat_of_celery(app) -> None:
    other = Celery("other", set_as_current=False)
    before = other.Beat.Service
    assert app.Beat is not None
    choose_ours(app)

    assert other.Beat.Service is before
