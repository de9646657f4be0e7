"""The pages of Beat in a real browser: who leads, what became of each due time, policies."""

from __future__ import annotations

import sys

import pytest
from celery.schedules import crontab
from playwright.sync_api import expect

from beat_leader.ticks import Outcome, State
from tests.browser.visiting import content, log_in, looks_right, told
from tests.helpers.beat_pages import HOSTILE, IN_MEMORY, Project
from tests.helpers.hardened_apps import hardened_app

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def project(settings, monkeypatch) -> Project:
    settings.HARDENING = {"APP": f"{__name__}.project_app"}
    settings.BEAT_LEADER = {**IN_MEMORY, "SCHEDULES": {"nightly": {"OVERLAP": False, "GRACE_SECONDS": 600}}}
    schedules = {
        "nightly": {"task": "shop.report", "schedule": crontab(hour=3, minute=0)},
        HOSTILE: {"task": "shop.poll", "schedule": 30.0},
    }
    app = hardened_app("project", task_time_limit=30, beat_schedule=schedules)
    monkeypatch.setattr(sys.modules[__name__], "project_app", app, raising=False)
    return Project(app)


def test_an_operator_sees_what_ran_and_asks_the_leader_to_resign(page, project) -> None:
    epoch = project.lead()
    project.due("nightly", 500.0, State.SKIPPED, "the one before has not ended")
    task_id = project.due("nightly", 100.0)
    project.ticks.note(task_id, Outcome.STARTED, project.now_ms - 90_000)
    project.ticks.note(task_id, Outcome.DEAD, project.now_ms - 85_000, "task_error")
    log_in(
        page, "view_beatterm", "view_tickrow", "resign_leader", "add_schedulepolicy", "view_schedulepolicy"
    )

    page.goto("/admin/")
    page.get_by_role("link", name="Due times", exact=True).first.click()
    expect(page.locator("#beat-schedules")).to_contain_text(HOSTILE)
    looks_right(page, "beat-schedules")
    page.get_by_role("link", name="nightly").first.click()
    expect(page.locator("#beat-due-times")).to_contain_text("the one before has not ended")
    looks_right(page, "beat-history")
    page.get_by_label("Decision").select_option("skipped")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("#beat-due-times")).not_to_contain_text(task_id)

    page.goto("/admin/beat_leader/beatterm/")
    expect(page.locator("#beat-leading")).to_contain_text("web-1:7:ab")
    looks_right(page, "beat-leader")
    page.get_by_label("Reason").fill("deploy")
    page.get_by_role("button", name="Ask it to resign").click()
    told(page, "was asked to resign")
    assert project.register.asked_to_resign(epoch)

    page.goto("/admin/beat_leader/schedulepolicy/add/")
    page.get_by_label("Schedule:").fill("nightly")
    looks_right(page, "beat-policy")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(content(page)).to_contain_text("nightly")


def test_nobody_leads_is_the_first_thing_that_is_said(page, project) -> None:
    log_in(page, "view_beatterm")
    page.goto("/admin/beat_leader/beatterm/")

    expect(page.locator(".errornote")).to_contain_text("nobody leads")
    looks_right(page, "beat-nobody-leads")
