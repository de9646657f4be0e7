"""The page of outages and retry budgets in a real browser: read, probe, close, in light and dark."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from selenium import webdriver
from selenium.webdriver.common.by import By

from hardening.conf import load_settings
from hardening.store import StateStore, chosen_store
from tests.helpers.hardened_apps import hardened_app
from tests.helpers.traffic import broken_store_settings, documents, fail, probing, spend

pytestmark = pytest.mark.django_db(transaction=True)

PASSWORD = "only for this test"


@pytest.fixture
def project(settings, monkeypatch) -> Callable[..., StateStore]:
    def make(**hardening) -> StateStore:
        settings.HARDENING = {
            "STORE": {"BACKEND": "hardening.stores.memory.MemoryStore"},
            **hardening,
            "APP": f"{__name__}.project_app",
        }
        app = hardened_app("project", task_time_limit=30)
        monkeypatch.setattr(sys.modules[__name__], "project_app", app, raising=False)

        @app.task(name="shop.tasks.charge", shared=False)
        def charge(): ...

        return chosen_store(app, load_settings()[0])

    return make


def log_in(browser: webdriver.Chrome, address: str, *codenames: str) -> None:
    user = User.objects.create_user(f"user-{uuid4()}", password=PASSWORD, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    browser.get(f"{address}/admin/login/?next=/admin/")
    browser.find_element(By.NAME, "username").send_keys(user.username)
    browser.find_element(By.NAME, "password").send_keys(PASSWORD)
    browser.find_element(By.CSS_SELECTOR, "input[type=submit]").click()
    browser.find_element(By.LINK_TEXT, "Outages and retry budgets").click()
    browser.find_element(By.CLASS_NAME, "hardening-outages")


def picture(browser: webdriver.Chrome, name: str) -> None:
    """Keep a screenshot where SCREENSHOTS names a directory."""
    if directory := os.environ.get("SCREENSHOTS"):
        browser.save_screenshot(str(Path(directory) / f"{name}.png"))


def content(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.ID, "content").text


def press(browser: webdriver.Chrome, dependency: str, button: str) -> None:
    row = browser.find_element(By.XPATH, f'//tr[th="{dependency}"]')
    row.find_element(By.CSS_SELECTOR, f'button[value="{button}"]').click()
    browser.find_element(By.CLASS_NAME, "messagelist")


def test_an_operator_reads_probes_and_closes_without_javascript(live_server, browser, project) -> None:
    store = project()
    hostile = 'x"><script>document.title = "broken"</script>'
    for task in ("shop.tasks.charge", "shop.tasks.refund"):
        fail(store, "stripe", 21, task=task)
    fail(store, hostile, 20)
    fail(store, "smtp.example.com", 20, task="mail.tasks.send")
    probing(store, "smtp.example.com", str(uuid4()))
    fail(store, "warehouse", 7, task="shop.tasks.reserve")
    spend(store, "shop.tasks.charge", 950)
    log_in(browser, live_server.url, "view_state", "change_state")
    for theme in ("light", "dark"):
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        )
        picture(browser, f"outages_{theme}")
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.refresh()

    shown = content(browser)
    assert "shop.tasks.charge\nshop.tasks.refund" in shown
    assert "7 of 20" in shown
    assert "shop.tasks.charge" in browser.find_element(By.ID, "hardening-budgets").text
    assert hostile in shown
    assert browser.title != "broken"

    press(browser, "stripe", "probe")
    assert "as soon as a task comes" in content(browser)
    press(browser, "stripe", "close")
    picture(browser, "outages_closed")

    assert "The outage of stripe is closed" in browser.find_element(By.CLASS_NAME, "messagelist").text
    assert set(documents(store)) == {hostile, "smtp.example.com", "warehouse"}


def test_who_may_only_look_sees_no_button(live_server, browser, project) -> None:
    fail(project(), "stripe", 20)
    log_in(browser, live_server.url, "view_state")
    picture(browser, "outages_view_only")
    browser.implicitly_wait(0)

    assert "stripe" in content(browser)
    assert browser.find_elements(By.CSS_SELECTOR, "#content button") == []


def test_a_store_that_does_not_answer_is_told(live_server, browser, project) -> None:
    project(**broken_store_settings())
    log_in(browser, live_server.url, "view_state", "change_state")
    picture(browser, "outages_store_down")

    assert "does not answer" in browser.find_element(By.CLASS_NAME, "errornote").text
