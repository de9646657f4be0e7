"""`manage.py hardening_status` shows schedules, outages and budgets, and says when the store is silent."""

from __future__ import annotations

import json
import sys
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError

import hardening.traffic_view
from hardening.audit import audit
from hardening.conf import load_settings
from hardening.core.findings import errors_of
from hardening.store import chosen_store
from hardening.traffic_view import traffic_view
from tests.helpers.hardened_apps import hardened_app
from tests.helpers.traffic import broken_store_settings, fail, probing, spend

pytestmark = pytest.mark.usefixtures("isolated")

MEMORY = {"STORE": {"BACKEND": "hardening.stores.memory.MemoryStore"}}


@pytest.fixture
def project(settings, monkeypatch):
    """Makes an app the project's; settings of hardening as keywords."""

    def make(**hardening):
        settings.HARDENING = {**MEMORY, **hardening, "APP": f"{__name__}.project_app"}
        app = hardened_app("project", task_time_limit=30)
        monkeypatch.setattr(sys.modules[__name__], "project_app", app, raising=False)

        @app.task(name="shop.charge", shared=False, dependency="stripe", max_retries=2)
        def charge(): ...

        @app.task(name="shop.mail", shared=False, retry_policy={"delays": "10 s, 20 s", "automatic": False})
        def mail(): ...

        return app

    return make


def store_of(app):
    return chosen_store(app, load_settings()[0])


def status() -> str:
    out = StringIO()
    call_command("hardening_status", stdout=out)
    return out.getvalue()


def data() -> dict:
    out = StringIO()
    call_command("hardening_status", "--json", stdout=out)
    found = json.loads(out.getvalue())
    assert isinstance(found, dict)
    return found


def test_each_task_has_its_schedule_its_span_and_its_dependency(project) -> None:
    project(CLASSIFY={"ValueError": "permanent"})

    found = data()
    tasks = {task["name"]: task["retries"] for task in found["tasks"]}

    assert tasks["shop.charge"] == {
        "automatic": True,
        "schedule": "3 attempts: 1-5 s, 1-10 s; at most 1 d",
        "span_seconds": [2.0, 15.0],
        "dependency": "stripe",
        "rules": 0,
    }
    assert tasks["shop.mail"]["automatic"] is False
    assert tasks["shop.mail"]["span_seconds"] == [30.0, 30.0]
    assert tasks["celery.chord_unlock"]["automatic"] is False
    assert found["project_rules"] == 1
    text = status()
    assert "rules of the project's own: 1" in text
    assert "3 attempts: 1-5 s, 1-10 s; at most 1 d; in all 2 s to 15 s" in text
    assert "depends on stripe" in text
    assert "retried only when it asks" in text


def test_outages_runs_and_budgets_are_read_from_the_store(project) -> None:
    app = project()
    fail(store_of(app), "stripe", 21)
    fail(store_of(app), "mailgun", 3, task="shop.mail")
    spend(store_of(app), "shop.charge", 150)

    traffic = data()["traffic"]

    assert traffic["problem"] is None
    assert traffic["store"] == "hardening.stores.memory.MemoryStore"
    (outage,) = traffic["outages"]
    assert (outage["dependency"], outage["failures"], outage["tasks"]) == ("stripe", 21, ["shop.charge"])
    assert outage["open_since"] <= traffic["now"] < outage["next_probe_at"]
    assert [(run["dependency"], run["failures"]) for run in traffic["runs"]] == [("mailgun", 3)]
    (budget,) = traffic["budgets"]
    assert (budget["task"], budget["capacity"]) == ("shop.charge", 100)
    assert 4 < budget["wait_seconds"] <= 5.1
    text = status()
    assert "stripe is DOWN for" in text
    assert "21 failures in a row, of shop.charge" in text
    assert "next probe in" in text
    assert "mailgun: 3 failures in a row, of shop.mail; no outage yet" in text
    assert "budget of shop.charge: -" in text
    assert "OVER, retries come" in text


def test_a_probe_under_way_is_named_as_long_as_its_lease(project) -> None:
    app = project()
    fail(store_of(app), "stripe", 20)
    probing(store_of(app), "stripe", "task-1")

    assert "probed now by task-1" in status()


def test_without_outages_it_says_so(project) -> None:
    project()

    assert "no dependency is down" in status()


def test_a_store_that_does_not_answer_is_a_clear_line(project) -> None:
    project(**broken_store_settings())

    text, traffic = status(), data()["traffic"]

    assert "THE STORE DOES NOT ANSWER, everything is admitted:" in text
    assert "no dependency is down" not in text
    assert traffic["problem"]
    assert traffic["outages"] == []


def test_a_store_that_cannot_be_loaded_is_a_clear_line_and_a_finding(project) -> None:
    project(STORE={"BACKEND": "no.such.Store"})

    found = data()

    assert found["traffic"]["store"] == "unusable"
    assert "no.such.Store" in found["traffic"]["problem"]
    assert [finding["code"] for finding in found["findings"]] == ["CH015"]


def test_the_number_of_budgets_that_are_read_is_bounded_and_told(project, monkeypatch) -> None:
    monkeypatch.setattr(hardening.traffic_view, "MOST_BUDGETS", 1)
    project()

    assert data()["traffic"]["budgets_not_read"] == 1
    assert "the budgets of 1 more tasks were not read" in status()


def test_a_slow_store_is_not_asked_for_every_budget(project) -> None:
    app = project()
    times = iter([0.0, 0.0, hardening.traffic_view.PATIENCE_SECONDS + 1])

    assert traffic_view(app, clock=lambda: next(times)).not_read == 1


def test_a_store_that_breaks_between_two_budgets_still_shows_the_outages(project, monkeypatch) -> None:
    app = project()
    store = store_of(app)
    fail(store, "stripe", 20)
    read = store.read

    def breaks(key):
        if key.startswith("budget:"):
            raise OSError("gone")
        return read(key)

    monkeypatch.setattr(store, "read", breaks)
    found = traffic_view(app)

    assert [each.dependency for each in found.outages] == ["stripe"]
    assert (found.problem, found.not_read) == ("gone", 2)


def test_documents_of_another_kind_are_no_outage(project) -> None:
    app = project()
    store_of(app).swap("outages", version=0, value={"a": 1, "b": {"v": 99}, "c": None}, ttl_seconds=60)

    found = traffic_view(app)

    assert (found.outages, found.runs, found.problem) == ((), (), "")


def test_an_unusable_retry_option_of_a_task_stops_a_worker(project) -> None:
    app = project()

    @app.task(name="bad", shared=False, retry_policy={"max_atempts": 3})
    def bad(): ...

    (finding,) = errors_of(audit(app))

    assert finding.code == "CH014"
    assert 'did you mean "max_attempts"?' in finding.what
    with pytest.raises(SystemCheckError, match="CH014"):
        call_command("check", "--tag", "celery", stderr=StringIO())
    assert "ERROR CH014: task bad has a retry option that cannot be used" in status()


def test_an_unusable_rule_of_a_task_stops_a_worker_and_one_of_celerys_options_warns(project) -> None:
    app = project()

    @app.task(name="bad", shared=False, classify={"ValueError": "permanet"}, default_retry_delay="soon")
    def bad(): ...

    assert {(finding.code, finding.level.name) for finding in audit(app)} == {
        ("CH013", "ERROR"),
        ("CH014", "WARNING"),
    }


def test_in_report_mode_an_unusable_retry_option_stops_no_command(project) -> None:
    app = project(MODE="report")

    @app.task(name="bad", shared=False, retry_policy=7)
    def bad(): ...

    call_command("check", "--tag", "celery", stderr=StringIO())
    assert "CH014" in {finding.code for finding in audit(app)}
