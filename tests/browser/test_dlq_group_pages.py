"""Groups of dead letters in a real browser: what broke is seen, and said, with a mouse or with keys alone."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from dlq.groups import duty
from dlq.groups.counting import count_new_letters
from dlq.models import LetterGroup, Operation
from dlq.sink import DatabaseSink
from tests.browser.visiting import PASSWORD, content, log_in, looks_right, told, user_with
from tests.helpers.dlq_letters import attempt, letter

pytestmark = pytest.mark.django_db(transaction=True)

GROUPS = "/admin/dlq/lettergroup/"
TRACEBACK = """Traceback (most recent call last):
  File "/srv/app/shop/tasks.py", line 41, in charge
    gateway.charge(order.total, card)
shop.errors.CardDeclined: card declined for order 4711"""


@pytest.fixture(autouse=True)
def _as_a_new_process(monkeypatch) -> None:
    monkeypatch.setattr(duty, "_memory", duty._Memory())


@pytest.fixture
def group() -> LetterGroup:
    """The larger of two: with letters over days, of several workers and releases."""
    now = timezone.now()
    for number in range(24):
        failed = attempt(1, message=f"card declined for order {4711 + number}", traceback=TRACEBACK)
        DatabaseSink().keep(
            letter(
                attempts=(failed,),
                failed_at=now - timedelta(hours=number * number / 4),
                worker=f"w{number % 3}@host",
                release=f"2026.{number % 2}",
            )
        )
    for _ in range(3):
        failed = attempt(1, message="no route to host", error_class="builtins.OSError")
        DatabaseSink().keep(
            letter(task_name="mail.tasks.send", queue="mail", attempts=(failed,), failed_at=now)
        )
    while count_new_letters().more:
        pass
    found: LetterGroup = LetterGroup.objects.get(task_name="shop.tasks.charge")
    return found


def decided(page: Page, state: str) -> None:
    """The page says that the group is so now."""
    expect(page.locator(".dlq-aside .dlq-state")).to_have_text(state, ignore_case=True)


def test_a_group_is_found_and_decided_on_without_leaving_its_page(page, group) -> None:
    log_in(page, "view_deadletter", "triage_deadletter", "replay_deadletter", "view_operation")
    page.goto(GROUPS)
    expect(page.locator("#result_list tbody tr")).to_have_count(2)
    looks_right(page, "groups")
    page.get_by_role("link", name="CardDeclined").click()
    expect(page.get_by_role("img", name="Last 24 hours")).to_be_visible()
    looks_right(page, "group")

    page.get_by_role("button", name="Acknowledge").click()
    decided(page, "acknowledged")
    page.locator("summary", has_text="Snooze").click()
    page.get_by_role("button", name="Snooze").click()
    expect(content(page)).to_contain_text("Give one of them: a span, a time or a release.")
    looks_right(page, "group-snooze-error")
    page.get_by_label("For", exact=True).select_option("1d")
    page.get_by_role("button", name="Snooze").click()
    decided(page, "snoozed")
    page.locator("summary", has_text="Resolve").click()
    page.get_by_label("In a release (optional)").fill("2026.9")
    page.get_by_label("Replay its open letters once that release runs").check()
    page.get_by_role("button", name="Resolve").click()
    decided(page, "resolved")
    looks_right(page, "group-resolved")

    group.refresh_from_db()
    assert (group.state, group.resolved_release, group.replay_on_release) == ("resolved", "2026.9", True)


def test_many_groups_are_decided_on_at_once(page, group) -> None:
    log_in(page, "view_deadletter", "triage_deadletter")
    page.goto(GROUPS)
    page.locator("#action-toggle").check()
    page.locator("select[name=action]").first.select_option("resolve_selected")
    page.locator("button[name=index]").first.click()
    expect(content(page)).to_contain_text("2 groups")
    looks_right(page, "groups-resolve")
    page.get_by_role("button", name="Resolve").click()
    told(page, "2 groups")
    assert set(LetterGroup.objects.values_list("state", flat=True)) == {"resolved"}


def test_an_operator_at_night_needs_no_mouse(page, group) -> None:
    """From the log-in to the dry run of a group's replay, by Tab, Space, letters and Enter."""
    permissions = ("view_deadletter", "triage_deadletter", "replay_deadletter", "view_operation")
    user = user_with(*permissions)

    def tab_to(selector: str) -> None:
        for _ in range(120):
            page.keyboard.press("Tab")
            if page.evaluate("s => document.activeElement.matches(s)", selector):
                seen = page.evaluate(_IS_SEEN)
                assert seen, f"nothing shows that {selector} has the focus"
                return
        raise AssertionError(f"Tab does not lead to {selector}")

    page.goto(f"/admin/login/?next={GROUPS}")
    page.keyboard.type(user.username)  # The first field has the focus.
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.locator("#result_list")).to_be_visible()

    tab_to(f'#result_list a[href*="{group.pk}"][href*="change"]')
    page.keyboard.press("Enter")
    decided(page, "open")
    tab_to('[action*="/acknowledge/"] [type=submit]')
    page.keyboard.press("Enter")
    decided(page, "acknowledged")
    tab_to("details:has([action*='/assign/']) > summary")
    page.keyboard.press("Space")
    tab_to("[action*='/assign/'] [name=owner]:not([type=hidden])")
    page.keyboard.type("ann")
    page.keyboard.press("Enter")
    expect(content(page)).to_contain_text("ann")
    tab_to("[action*='/replay/'] [name=why]")
    page.keyboard.type("the gateway is back")
    page.keyboard.press("Enter")

    expect(content(page)).to_contain_text("Nothing has moved yet")
    operation = Operation.objects.get()
    assert (operation.state, operation.total, operation.why) == ("planned", 24, "the gateway is back")
    group.refresh_from_db()
    assert group.owner == "ann"


_IS_SEEN = """() => {
  const looks = e => { const s = getComputedStyle(e);
    return [s.outlineStyle, s.outlineWidth, s.outlineColor, s.borderColor, s.boxShadow, s.backgroundColor,
            s.color, s.textDecorationLine].join() };
  const e = document.activeElement, focused = looks(e);
  e.blur(); const plain = looks(e); e.focus();
  return focused !== plain;
}"""


def test_other_groupings_and_empty_pages_look_right(page, group) -> None:
    log_in(page, "view_deadletter")
    page.goto(f"{GROUPS}by/worker/")
    expect(content(page)).to_contain_text("w2@host")
    looks_right(page, "groups-by-worker")
    page.goto(f"{GROUPS}?q=nothing-is-called-so")
    expect(content(page)).to_contain_text("No group fits these filters.")
    looks_right(page, "groups-none")
