"""The admin of dead letters in a real browser: found, read, discarded and restored, purged, by who may."""

from __future__ import annotations

import re

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from dlq.groups.counting import count_new_letters
from dlq.models import DeadLetter, Operation
from dlq.operations.making import make_operation
from dlq.sink import DatabaseSink
from hardening.core.letter import Canvas
from tests.browser.visiting import content, forged, log_in, looks_right, told
from tests.helpers.dlq_letters import attempt, body_of, letter

pytestmark = pytest.mark.django_db(transaction=True)

LETTERS = "/admin/dlq/deadletter/"
GROUPS = "/admin/dlq/lettergroup/"
OPERATIONS = "/admin/dlq/operation/"
ACTIONS = ("replay", "copy", "discard", "restore", "purge")
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


def choose(page: Page, action: str) -> None:
    """For all letters of the page."""
    page.locator("#action-toggle").check()
    page.locator("select[name=action]").first.select_option(action)
    page.locator("button[name=index]").first.click()


def states() -> list[str]:
    return sorted(DeadLetter.objects.values_list("state", flat=True))


def test_a_letter_is_found_by_filters_and_by_its_id_and_read(page, letters) -> None:
    log_in(page, "view_deadletter", "replay_deadletter", "discard_deadletter", "view_payload")
    page.goto(LETTERS)
    rows = page.locator("#result_list tbody tr")
    expect(rows).to_have_count(3)
    looks_right(page, "letters")

    chosen = page.locator("#changelist-filter")
    chosen.get_by_role("link", name="mail.tasks.send").click()
    expect(rows).to_have_count(1)
    chosen.get_by_role("link", name="last hour").click()
    expect(rows).to_have_count(1)
    chosen.get_by_role("link", name="older than 7 days").click()
    expect(rows).to_have_count(0)
    expect(content(page)).to_contain_text("No letter fits these filters.")
    looks_right(page, "letters-none")
    page.get_by_role("link", name="Clear all filters").click()
    expect(rows).to_have_count(3)
    page.locator("#searchbar").fill(letters[0].task_id)
    page.locator("#searchbar").press("Enter")
    expect(rows).to_have_count(1)

    page.locator(f'a[href*="{letters[0].pk}"]').first.click()
    expect(content(page)).to_contain_text("declined: insufficient funds")
    expect(content(page)).to_contain_text("[redacted]")
    assert "hunter22" not in page.content()
    assert page.title() != "broken"
    looks_right(page, "letter")


def test_letters_are_downloaded(page, letters) -> None:
    log_in(page, "view_deadletter", "view_payload")
    page.goto(LETTERS)
    page.get_by_role("link", name="Export", exact=True).click()
    expect(content(page)).to_contain_text("3 letters")
    looks_right(page, "export")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert letters[0].task_id in download.value.path().read_text()


def test_letters_are_discarded_with_a_reason_and_restored(page, letters) -> None:
    log_in(page, "view_deadletter", "discard_deadletter")
    page.goto(LETTERS)
    choose(page, "discard_selected")
    expect(content(page)).to_contain_text("3 letters")
    looks_right(page, "discard")
    page.get_by_label("Reason").fill("known bug")
    page.get_by_role("button", name="Discard").click()
    told(page, "3 letters were discarded.")
    assert states() == ["discarded"] * 3

    page.locator(f'#result_list a[href*="{letters[1].pk}"]').click()
    expect(content(page)).to_contain_text("known bug")
    page.locator('.object-tools a[href$="/restore/"]').click()
    expect(content(page)).to_contain_text("Open these letters again?")
    looks_right(page, "restore")
    page.get_by_label("Reason").fill("not that bug")
    page.get_by_role("button", name="Restore").click()
    told(page, "1 letter was restored.")
    assert states() == ["discarded", "discarded", "open"]


def test_letters_are_purged_only_with_their_count_typed_in(page, letters) -> None:
    DeadLetter.objects.exclude(pk=letters[0].pk).update(state="discarded", closed_at=timezone.now())
    log_in(page, "view_deadletter", "purge_deadletter")
    page.goto(LETTERS)
    choose(page, "purge_selected")
    count = page.get_by_label("How many letters")
    count.fill("3")
    page.get_by_role("button", name="Purge").click()

    expect(page.get_by_role("alert").last).to_contain_text("2 letters would be deleted. Nothing was.")
    looks_right(page, "purge-wrong-count")
    assert len(states()) == 3
    count.fill("2")
    page.get_by_role("button", name="Purge").click()
    told(page, "2 letters were deleted for good.")
    assert states() == ["open"]


def test_a_user_who_may_only_view_sees_no_action_and_a_forged_one_is_forbidden(page, letters) -> None:
    count_new_letters()
    group = DeadLetter.objects.get(pk=letters[0].pk).fingerprint
    operation = make_operation(letters=[letters[0].pk], by="somebody")
    log_in(page, "view_deadletter", "view_operation")
    one, of_group = f"{LETTERS}{letters[0].pk}/", f"{GROUPS}{group}/"
    of_operation = f"{OPERATIONS}{operation.pk}/"
    verbs = re.compile(
        r"/(replay|copy|edit|discard|restore|purge|triage|start|pause|resume|cancel|add|delete)/"
    )
    for name, address in {
        "letters": LETTERS,
        "letter": f"{one}change/",
        "unclassified": f"{LETTERS}unclassified/",
        "groups": GROUPS,
        "group": f"{of_group}change/",
        "group-by": f"{GROUPS}by/queue/",
        "operations": OPERATIONS,
        "operation": f"{of_operation}change/",
    }.items():
        page.goto(address)
        expect(page.locator("#content h1")).to_be_visible()
        offered = page.locator("#content select[name=action] option").evaluate_all(
            "all => all.map(x => x.value)"
        )
        assert offered == [], name
        # Looking for letters, and choosing the columns to look at, are forms too.
        asked = page.locator("#content form[method=post]").evaluate_all("all => all.map(x => x.id)")
        assert set(asked) <= {"changelist-form", "deadletter_form", "lettergroup_form"}, name
        linked = page.locator("#content a, #content form").evaluate_all(
            "all => all.map(x => x.getAttribute('href') || x.getAttribute('action') || '')"
        )
        assert [each for each in linked if verbs.search(each)] == [], name
        if name in ("letter", "operation", "unclassified"):
            looks_right(page, f"view-only-{name}")
    page.goto(f"{one}change/")
    expect(content(page)).to_contain_text("Hidden: seeing the payload needs")

    selected = {
        "_selected_action": str(letters[0].pk),
        "select_across": "0",
        "confirmed": "yes",
        "count": "1",
    }
    answers = {
        **{f"{name} of one": forged(page, f"{one}{name}/", confirmed="yes") for name in ACTIONS},
        **{
            f"{name} of many": forged(page, LETTERS, action=f"{name}_selected", **selected)
            for name in ACTIONS
        },
        "edit": forged(page, f"{one}edit/", step="send"),
        **{
            name: forged(page, f"{GROUPS}triage/{name}/", group=f"open:{group}", span="1d", back="group")
            for name in ("acknowledge", "snooze", "resolve", "reopen", "assign", "note")
        },
        "replay of a group": forged(page, f"{of_group}replay/"),
        **{name: forged(page, f"{of_operation}{name}/") for name in ("start", "pause", "resume", "cancel")},
    }
    assert set(answers.values()) == {403}, answers
    assert states() == ["open"] * 3
    assert Operation.objects.get().state == "planned"


def test_unclassified_errors_are_read_without_javascript(scriptless, letters) -> None:
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
    page = scriptless
    log_in(page, "view_deadletter")
    page.goto(LETTERS)
    page.locator('.object-tools a[href$="/unclassified/"]').click()
    page.locator("summary").first.click()
    looks_right(page, "unclassified", audit=False)

    shown = content(page).inner_text()
    assert page.title() != "broken"
    assert shown.count('"acme.client.Busy": "transient"') == 2
    assert "manage.py hardening_explain acme.client.Busy" in shown
    assert hostile in shown
    page.get_by_role("link", name="2 letters").click()
    expect(content(page)).to_contain_text("2 dead letters")
