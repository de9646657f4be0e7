"""The page of delayed tasks in a real browser: page, search, cancel, with script and without."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from hardening.delayed.store import DelayedStore
from tests.browser.visiting import content, log_in, looks_right, told
from tests.helpers.delayed_tasks import BROKEN, MEMORY, delay, delayed_store_of
from tests.helpers.hardened_apps import hardened_app

pytestmark = pytest.mark.django_db(transaction=True)

DELAYED = "/admin/hardening/delayedtask/"


@pytest.fixture
def project(settings, monkeypatch) -> Callable[..., DelayedStore]:
    def make(hardening=MEMORY) -> DelayedStore:
        settings.HARDENING = {**hardening, "APP": f"{__name__}.project_app"}
        app = hardened_app("project", task_time_limit=30)
        monkeypatch.setattr(sys.modules[__name__], "project_app", app, raising=False)
        return delayed_store_of(app)

    return make


@pytest.mark.parametrize("scripts", [True, False], ids=["script", "scriptless"])
def test_an_operator_pages_searches_and_cancels(open_page, project, scripts) -> None:
    store = project()
    hostile = '"><script>document.title = "broken"</script>'
    for number in range(120):
        delay(store, f"task-{number:03d}", seconds=3600 + number * 60, attempt=1 + number % 3)
    delay(store, hostile, seconds=60, task=hostile)
    page = open_page(java_script_enabled=scripts)
    log_in(page, "view_delayedtask", "change_delayedtask")
    page.goto("/admin/")
    page.get_by_role("link", name="Delayed tasks").first.click()
    expect(content(page)).to_contain_text(hostile)
    assert page.title() != "broken"
    expect(content(page)).to_contain_text("121 tasks wait")

    page.get_by_role("link", name="later").click()
    expect(content(page)).to_contain_text("page 2 of 2")
    expect(content(page)).to_contain_text("task-119")
    for task_id in ("task-118", "task-119"):
        page.get_by_label(f"Cancel {task_id}").check()
    if scripts:
        looks_right(page, "delayed")
    page.get_by_role("button", name="Cancel the ticked tasks").click()
    told(page, "2 tasks were cancelled.")
    expect(page.locator("#hardening-cancelled")).to_contain_text("task-118")
    assert store.count() == 119

    page.get_by_label("Task id").fill("task-042")
    page.get_by_role("button", name="Search").click()
    table = page.locator("#hardening-delayed")
    expect(table).to_contain_text("task-042")
    expect(table).not_to_contain_text("task-043")


def test_who_may_only_look_cannot_cancel(page, project) -> None:
    delay(project(), "task-1")
    log_in(page, "view_delayedtask")
    page.goto(DELAYED)

    expect(content(page)).to_contain_text("task-1")
    expect(page.locator("#hardening-cancel button, #content input[type=checkbox]")).to_have_count(0)


def test_a_store_that_does_not_answer_is_told(page, project) -> None:
    project(BROKEN)
    log_in(page, "view_delayedtask", "change_delayedtask")
    page.goto(DELAYED)

    expect(page.locator(".errornote")).to_contain_text("does not answer")
