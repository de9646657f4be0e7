"""The page of delayed tasks in a real browser: page, search, cancel, in light and dark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from selenium import webdriver
from selenium.webdriver.common.by import By

from hardening.delayed.store import DelayedStore
from tests.helpers.delayed_tasks import BROKEN, MEMORY, delay, delayed_store_of
from tests.helpers.hardened_apps import hardened_app

from .test_hardening_admin_page import PASSWORD, content, picture

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def project(settings, monkeypatch) -> Callable[..., DelayedStore]:
    def make(hardening=MEMORY) -> DelayedStore:
        settings.HARDENING = {**hardening, "APP": f"{__name__}.project_app"}
        app = hardened_app("project", task_time_limit=30)
        monkeypatch.setattr(sys.modules[__name__], "project_app", app, raising=False)
        return delayed_store_of(app)

    return make


def log_in(browser: webdriver.Chrome, address: str, *codenames: str) -> None:
    user = User.objects.create_user(f"user-{uuid4()}", password=PASSWORD, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    browser.get(f"{address}/admin/login/?next=/admin/")
    browser.find_element(By.NAME, "username").send_keys(user.username)
    browser.find_element(By.NAME, "password").send_keys(PASSWORD)
    browser.find_element(By.CSS_SELECTOR, "input[type=submit]").click()
    browser.find_element(By.LINK_TEXT, "Delayed tasks").click()
    browser.find_element(By.CLASS_NAME, "hardening-delayed")


def test_an_operator_pages_searches_and_cancels_without_javascript(live_server, browser, project) -> None:
    store = project()
    hostile = '"><script>document.title = "broken"</script>'
    for number in range(120):
        delay(store, f"task-{number:03d}", seconds=3600 + number * 60, attempt=1 + number % 3)
    delay(store, hostile, seconds=60, task=hostile)
    log_in(browser, live_server.url, "view_delayedtask", "change_delayedtask")
    for theme in ("light", "dark"):
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        )
        picture(browser, f"delayed_{theme}")
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.refresh()
    assert hostile in content(browser)
    assert browser.title != "broken"
    assert "121 tasks wait" in content(browser)

    browser.find_element(By.LINK_TEXT, "later").click()
    assert "page 2 of 2" in content(browser)
    assert "task-119" in content(browser)
    for task_id in ("task-118", "task-119"):
        browser.find_element(By.CSS_SELECTOR, f'input[aria-label="Cancel {task_id}"]').click()
    browser.find_element(By.CSS_SELECTOR, "#hardening-cancel button").click()
    picture(browser, "delayed_cancelled")

    assert "2 tasks were cancelled." in browser.find_element(By.CLASS_NAME, "messagelist").text
    assert "task-118" in browser.find_element(By.ID, "hardening-cancelled").text
    assert store.count() == 119

    browser.find_element(By.NAME, "q").send_keys("task-042")
    browser.find_element(By.CSS_SELECTOR, ".hardening-search button").click()
    table = browser.find_element(By.ID, "hardening-delayed").text
    assert "task-042" in table
    assert "task-043" not in table


def test_who_may_only_look_cannot_cancel(live_server, browser, project) -> None:
    delay(project(), "task-1")
    log_in(browser, live_server.url, "view_delayedtask")
    picture(browser, "delayed_view_only")
    browser.implicitly_wait(0)

    assert "task-1" in content(browser)
    assert browser.find_elements(By.CSS_SELECTOR, "#hardening-cancel button, input[type=checkbox]") == []


def test_a_store_that_does_not_answer_is_told(live_server, browser, project) -> None:
    project(BROKEN)
    log_in(browser, live_server.url, "view_delayedtask", "change_delayedtask")
    picture(browser, "delayed_store_down")

    assert "does not answer" in browser.find_element(By.CLASS_NAME, "errornote").text
