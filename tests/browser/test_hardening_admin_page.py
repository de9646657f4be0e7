"""The page of outages and retry budgets in a real browser: read, probe, close, with script and without."""

from __future__ import annotations

import sys
from collections.abc import Callable
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from hardening.conf import load_settings
from hardening.store import StateStore, chosen_store
from tests.browser.visiting import content, log_in, looks_right, told
from tests.helpers.hardened_apps import hardened_app
from tests.helpers.traffic import broken_store_settings, documents, fail, probing, spend

pytestmark = pytest.mark.django_db(transaction=True)

STATE = "/admin/hardening/state/"


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


def press(page: Page, dependency: str, button: str) -> None:
    page.locator("tr", has=page.get_by_role("rowheader", name=dependency)).locator(
        f'button[value="{button}"]'
    ).click()


@pytest.mark.parametrize("scripts", [True, False], ids=["script", "scriptless"])
def test_an_operator_reads_probes_and_closes(open_page, project, scripts) -> None:
    store = project()
    hostile = 'x"><script>document.title = "broken"</script>'
    for task in ("shop.tasks.charge", "shop.tasks.refund"):
        fail(store, "stripe", 21, task=task)
    fail(store, hostile, 20)
    fail(store, "smtp.example.com", 20, task="mail.tasks.send")
    probing(store, "smtp.example.com", str(uuid4()))
    fail(store, "warehouse", 7, task="shop.tasks.reserve")
    spend(store, "shop.tasks.charge", 950)
    page = open_page(java_script_enabled=scripts)
    log_in(page, "view_state", "change_state")
    page.goto("/admin/")
    page.get_by_role("link", name="Outages and retry budgets").first.click()
    expect(content(page)).to_contain_text("shop.tasks.charge\nshop.tasks.refund", use_inner_text=True)
    expect(content(page)).to_contain_text("7 of 20")
    expect(page.locator("#hardening-budgets")).to_contain_text("shop.tasks.charge")
    expect(content(page)).to_contain_text(hostile)
    assert page.title() != "broken"
    if scripts:
        looks_right(page, "outages")

    press(page, "stripe", "probe")
    expect(content(page)).to_contain_text("as soon as a task comes")
    press(page, "stripe", "close")
    told(page, "The outage of stripe is closed")
    assert set(documents(store)) == {hostile, "smtp.example.com", "warehouse"}


def test_who_may_only_look_sees_no_button(page, project) -> None:
    fail(project(), "stripe", 20)
    log_in(page, "view_state")
    page.goto(STATE)

    expect(content(page)).to_contain_text("stripe")
    expect(page.locator("#content button")).to_have_count(0)


def test_a_store_that_does_not_answer_is_told(page, project) -> None:
    project(**broken_store_settings())
    log_in(page, "view_state", "change_state")
    page.goto(STATE)

    expect(page.locator(".errornote")).to_contain_text("does not answer")
    looks_right(page, "outages-store-down")
