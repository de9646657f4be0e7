"""The pages of Beat: who may see and act, what is shown of leader, schedules and due times."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from celery.schedules import crontab
from django.contrib.admin.models import LogEntry

from beat_leader.models import SchedulePolicy
from beat_leader.ticks import Decision, Outcome, State
from tests.helpers.beat_pages import HOSTILE, IN_MEMORY, Project
from tests.helpers.hardened_apps import hardened_app

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("isolated")]

LEADER = "/admin/beat_leader/beatterm/"
RESIGN = f"{LEADER}resign/"
SCHEDULES = "/admin/beat_leader/tickrow/"
HISTORY = f"{SCHEDULES}history/"
POLICIES = "/admin/beat_leader/schedulepolicy/"


@pytest.fixture
def project(settings, monkeypatch):
    settings.HARDENING = {"APP": f"{__name__}.project_app"}
    settings.BEAT_LEADER = IN_MEMORY
    app = hardened_app(
        "project",
        task_time_limit=30,
        beat_schedule={
            "nightly": {"task": "shop.report", "schedule": crontab(hour=3, minute=0)},
            HOSTILE: {"task": "shop.poll", "schedule": 30.0},
        },
    )
    monkeypatch.setattr(sys.modules[__name__], "project_app", app, raising=False)
    return Project(app)


def text_of(client: Any, address: str, **query: Any) -> str:
    response = client.get(address, query)
    assert response.status_code == 200
    text = str(response.content.decode())
    assert "<script>alert" not in text
    return text


def test_each_page_needs_its_view_permission(client, user_with, project) -> None:
    for address in (LEADER, SCHEDULES, HISTORY):
        assert client.get(address).status_code == 302
    user_with("view_beatterm")
    assert client.get(LEADER).status_code == 200
    assert client.get(SCHEDULES).status_code == 403
    user_with("view_tickrow")
    assert client.get(SCHEDULES).status_code == 200
    assert client.get(HISTORY).status_code == 200
    assert client.post(HISTORY).status_code == 405
    assert client.get(LEADER).status_code == 403


def test_who_may_only_look_sees_no_button_and_a_forged_post_is_refused(client, user_with, project) -> None:
    epoch = project.lead()
    user_with("view_beatterm")

    assert "Ask it to resign" not in text_of(client, LEADER)
    assert client.post(RESIGN, {"epoch": epoch, "reason": "x"}).status_code == 403
    assert project.register.asked_to_resign(epoch) is None


def test_the_leader_is_asked_to_resign_with_a_reason_and_it_is_logged(client, user_with, project) -> None:
    epoch = project.lead()
    user_with("view_beatterm", "resign_leader")
    assert "Ask it to resign" in text_of(client, LEADER)
    assert client.get(RESIGN).status_code == 405

    client.post(RESIGN, {"epoch": epoch, "reason": " "})
    client.post(RESIGN, {"epoch": epoch + 1, "reason": "another term"})
    client.post(RESIGN, {"epoch": "no", "reason": "no number"})
    assert project.register.asked_to_resign(epoch) is None
    client.post(RESIGN, {"epoch": epoch, "reason": "deploy"})

    assert project.register.asked_to_resign(epoch)
    assert [each.change_message for each in LogEntry.objects.all()] == ["Asked to resign: deploy"]


def test_it_says_who_leads_who_led_and_what_is_wrong(client, user_with, project) -> None:
    user_with("view_beatterm")
    assert "nobody leads" in text_of(client, LEADER)
    project.lead(HOSTILE)

    text = text_of(client, LEADER)

    for shown in (" s ago", "leads now", "None: if the leader dies"):
        assert shown in text


def test_did_03_00_run_who_sent_it_and_did_it_finish(client, user_with, project) -> None:
    project.lead()
    user_with("view_tickrow")
    assert "none yet" in text_of(client, SCHEDULES)
    project.due("nightly", 200.0, State.SKIPPED, "misfire: skip")
    task_id = project.due("nightly", 100.0)
    project.ticks.note(task_id, Outcome.STARTED, project.now_ms - 90_000)
    project.ticks.note(task_id, Outcome.DEAD, project.now_ms - 85_000, "task_error")

    text = text_of(client, SCHEDULES)
    for shown in ("nightly", "0 3 * * *", "1.5 s after it was due", "dead letter", "took 5.0 s"):
        assert shown in text
    assert f"/admin/dlq/deadletter/?q={task_id}" in text

    history = text_of(client, HISTORY, schedule="nightly")
    for shown in ("misfire: skip", "web-1:7:ab", "task_error", task_id):
        assert shown in history
    only_skipped = text_of(client, HISTORY, state="skipped")
    assert "misfire: skip" in only_skipped
    assert task_id not in only_skipped


def test_many_due_times_at_one_moment_are_paged_without_a_gap(client, user_with, project) -> None:
    project.lead()
    user_with("view_tickrow")
    moment = project.now_ms
    decisions = [
        Decision(schedule=f"s{number:03}", due_ms=moment, state=State.SKIPPED, why="x")
        for number in range(130)
    ]
    project.ticks.decide(1, decisions)

    first = client.get(HISTORY)
    second = client.get(f"{HISTORY}?{first.context['older']}")

    names = [row.tick.schedule for page in (first, second) for row in page.context["rows"]]
    assert sorted(names) == sorted({each.schedule for each in decisions})
    assert second.context["older"] == ""


def test_stores_that_do_not_answer_are_said_so(client, user_with, project, settings) -> None:
    settings.BEAT_LEADER = {
        "LOCK": {"BACKEND": "beat_leader.locks.redis.RedisLock", "OPTIONS": {"url": "redis://127.0.0.1:1/0"}},
        "STORE": {"BACKEND": "beat_leader.stores.redis", "OPTIONS": {"url": "redis://127.0.0.1:1/0"}},
        "SOURCE": "code",
    }
    user_with("view_beatterm", "view_tickrow")

    for address in (LEADER, SCHEDULES, HISTORY):
        assert "no schedule is sent" in text_of(client, address)


def test_a_policy_is_changed_by_who_may_and_its_ping_is_not_shown_to_who_may_only_look(
    client, user_with, project
) -> None:
    user_with("add_schedulepolicy", "view_schedulepolicy")
    form = {"schedule": "nightly", "misfire": "skip", "ping": "https://hc.example/secret-uuid"}
    assert client.post(f"{POLICIES}add/", form).status_code == 302
    policy = SchedulePolicy.objects.get()
    assert (policy.misfire, policy.overlap) == ("skip", None)

    user_with("view_schedulepolicy")
    text = text_of(client, f"{POLICIES}{policy.pk}/change/")
    assert "nightly" in text
    assert "secret-uuid" not in text
    assert "secret-uuid" not in text_of(client, POLICIES)
