"""The admin of dead letters in a real browser: list, detail, replay, discard, unclassified errors."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import pytest
from celery import Celery
from django.contrib.auth.models import Permission, User
from django.utils import timezone
from kombu import Queue
from selenium import webdriver
from selenium.webdriver.common.by import By

from dlq.models import DeadLetter
from dlq.sink import DatabaseSink
from hardening.core.letter import Canvas
from tests.helpers.dlq_letters import attempt, body_of, letter

pytestmark = pytest.mark.django_db(transaction=True)

PASSWORD = "only for this test"
TRACEBACK = """Traceback (most recent call last):
  File "shop/tasks.py", line 41, in charge
    gateway.charge(order.total, card)
  File "shop/gateway.py", line 112, in charge
    raise CardDeclined(response.reason)
shop.errors.CardDeclined: declined: insufficient funds <script>document.title = "broken"</script>"""


@pytest.fixture
def letters() -> list[DeadLetter]:
    now = timezone.now()
    records = [
        letter(
            body=body_of(41, "hunter22", card_number="4111111111111111", items=[{"sku": "A-1", "count": 2}]),
            attempts=tuple(
                attempt(n, message="declined: insufficient funds", traceback=TRACEBACK) for n in (1, 2, 3)
            ),
            canvas=Canvas(group="g-1", chord="shop.tasks.total"),
            failed_at=now,
        ),
        letter(
            task_name="mail.tasks.send", queue="mail", routing_key="mail", reason="time_limit", failed_at=now
        ),
        letter(failed_at=now),
    ]
    for record in records:
        DatabaseSink().keep(record)
    return [DeadLetter.objects.get(task_id=record.task_id) for record in records]


def log_in(browser: webdriver.Chrome, address: str, *codenames: str) -> None:
    user = User.objects.create_user(f"user-{uuid4()}", password=PASSWORD, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    browser.get(f"{address}/admin/login/?next=/admin/dlq/deadletter/")
    browser.find_element(By.NAME, "username").send_keys(user.username)
    browser.find_element(By.NAME, "password").send_keys(PASSWORD)
    browser.find_element(By.CSS_SELECTOR, "input[type=submit]").click()
    browser.find_element(By.ID, "changelist")


def picture(browser: webdriver.Chrome, name: str) -> None:
    """Keep a screenshot where SCREENSHOTS names a directory."""
    if directory := os.environ.get("SCREENSHOTS"):
        height = browser.execute_script("return document.documentElement.scrollHeight")
        browser.set_window_size(1400, max(1100, height + 100))
        browser.save_screenshot(str(Path(directory) / f"{name}.png"))


def test_a_letter_is_found_read_and_replayed_through_the_confirm_page(
    live_server, browser, letters, monkeypatch
) -> None:
    app = Celery("browser", broker=f"memory://{uuid4()}", set_as_current=False)
    monkeypatch.setattr("dlq.replay.celery_app", lambda: app)
    with app.connection() as connection:
        Queue("payments")(connection.default_channel).declare()
    row = letters[0]
    log_in(
        browser, live_server.url, "view_deadletter", "replay_deadletter", "discard_deadletter", "view_payload"
    )
    picture(browser, "list")

    browser.find_element(By.CSS_SELECTOR, f'a[href*="{row.pk}"]').click()
    shown = browser.find_element(By.ID, "content").text
    picture(browser, "detail")
    assert "declined: insufficient funds" in shown
    assert "[redacted]" in shown
    assert "hunter22" not in browser.page_source
    assert browser.title != "broken"

    browser.find_element(By.CSS_SELECTOR, '.object-tools a[href$="/replay/"]').click()
    picture(browser, "confirm_replay")
    assert "1 letter" in browser.find_element(By.ID, "content").text
    browser.find_element(By.CSS_SELECTOR, "#content input[type=submit]").click()

    assert "1 letter was sent again." in browser.find_element(By.CLASS_NAME, "messagelist").text
    picture(browser, "replayed")
    row.refresh_from_db()
    assert row.state == "replayed"


def test_many_letters_are_discarded_from_the_list_with_a_reason(live_server, browser, letters) -> None:
    log_in(browser, live_server.url, "view_deadletter", "discard_deadletter")
    browser.find_element(By.ID, "action-toggle").click()
    browser.find_element(By.CSS_SELECTOR, 'select[name=action] option[value="discard_selected"]').click()
    browser.find_element(By.NAME, "index").click()

    browser.find_element(By.NAME, "reason").send_keys("known bug")
    picture(browser, "confirm_discard")
    browser.find_element(By.CSS_SELECTOR, "#content input[type=submit]").click()

    assert "3 letters were discarded." in browser.find_element(By.CLASS_NAME, "messagelist").text
    assert set(DeadLetter.objects.values_list("state", "discard_reason")) == {("discarded", "known bug")}


def test_a_user_who_may_only_view_sees_no_action(live_server, browser, letters) -> None:
    log_in(browser, live_server.url, "view_deadletter")
    browser.implicitly_wait(0)

    assert browser.find_elements(By.NAME, "action") == []
    browser.get(f"{live_server.url}/admin/dlq/deadletter/{letters[0].pk}/change/")
    assert "Hidden: seeing the payload needs" in browser.find_element(By.ID, "content").text
    for name in ("replay", "discard"):
        assert browser.find_elements(By.CSS_SELECTOR, f'a[href*="/{name}/"]') == []


def test_unclassified_errors_are_read_without_javascript_in_light_and_dark(
    live_server, browser, letters
) -> None:
    hostile = 'x"><script>document.title = "broken"</script>'
    for error_class, task in (
        ("acme.client.Busy", "shop.tasks.charge"),
        ("acme.client.Busy", "mail.tasks.send"),
        (hostile, "shop.tasks.charge"),
    ):
        failed = attempt(1, error_class=error_class, verdict="unknown")
        DatabaseSink().keep(
            letter(task_name=task, reason="unclassified", attempts=(failed,), failed_at=timezone.now())
        )
    log_in(browser, live_server.url, "view_deadletter")
    browser.find_element(By.CSS_SELECTOR, '.object-tools a[href$="/unclassified/"]').click()
    browser.find_element(By.TAG_NAME, "summary").click()
    colours = set()
    for theme in ("light", "dark"):
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        )
        snippet = browser.find_element(By.ID, "dlq-snippet")
        colours |= {snippet.value_of_css_property(name) for name in ("color", "background-color")}
        picture(browser, f"unclassified_{theme}")
    assert len(colours) == 4

    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.refresh()
    browser.find_element(By.TAG_NAME, "summary").click()

    shown = browser.find_element(By.ID, "content").text
    assert browser.title != "broken"
    assert shown.count('"acme.client.Busy": "transient"') == 2
    assert "manage.py hardening_explain acme.client.Busy" in shown
    assert hostile in shown
    browser.find_element(By.LINK_TEXT, "2 letters").click()
    assert "2 dead letters" in browser.find_element(By.ID, "content").text
