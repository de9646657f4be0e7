"""Operations, and edit and replay, in a real browser: with and without script, by keyboard."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from celery import Celery
from django.utils import timezone
from kombu import Queue
from playwright.sync_api import Locator, Page, expect

from dlq.models import DeadLetter, Operation
from dlq.operations.runner import run_operation
from dlq.sink import DatabaseSink
from tests.browser.visiting import content, log_in, looks_right, told
from tests.helpers.admin_app import use_app
from tests.helpers.dlq_letters import body_of, letter

pytestmark = pytest.mark.django_db(transaction=True)

LETTERS, OPERATIONS = "/admin/dlq/deadletter/", "/admin/dlq/operation/"


@pytest.fixture
def app(monkeypatch) -> Celery:
    found = Celery("browser", broker=f"memory://{uuid4()}", set_as_current=False)
    found.conf.task_queues = [Queue("payments"), Queue("slow")]

    @found.task(name="shop.tasks.charge", shared=False)
    def charge(order_id: int, password: str, *, card_number: str = "") -> None:
        """Never run here."""

    use_app(monkeypatch, found)
    with found.connection() as opened:
        for queue in found.conf.task_queues:
            queue(opened.default_channel).declare()
    return found


@pytest.fixture
def letters() -> list[DeadLetter]:
    for number in range(3):
        body = body_of(41 + number, "hunter22", card_number="4111111111111111")
        DatabaseSink().keep(letter(body=body, failed_at=timezone.now()))
    return list(DeadLetter.objects.order_by("failed_at"))


@pytest.fixture(params=[True, False], ids=["script", "scriptless"])
def seen(request, open_page: Callable[..., Page]) -> tuple[Page, Callable[[str], None]]:
    """A page, and a look at it; screenshots and axe where scripts run."""
    page = open_page(java_script_enabled=request.param)

    def look(name: str) -> None:
        if request.param:
            looks_right(page, name)

    return page, look


def described(field: Locator) -> list[str]:
    """The ids of what is said of a field, as a screen reader finds them."""
    return (field.get_attribute("aria-describedby") or "").split()


def press(page: Page, control: str) -> None:
    """A button of the operation, by keyboard."""
    page.locator(f'.dlq-controls form[action$="/{control}/"] button').press("Enter")


def test_an_operation_is_made_run_paused_and_cancelled(seen, letters, app) -> None:
    page, look = seen
    log_in(page, "view_deadletter", "replay_deadletter", "view_operation")
    page.goto(OPERATIONS)
    expect(content(page)).to_contain_text("No operation was made yet.")
    look("operations-none")

    page.goto(LETTERS)
    for box in page.locator("input.action-select").all():
        box.press("Space")
    page.locator("select[name=action]").first.select_option("replay_selected")
    page.locator("button[name=index]").first.press("Enter")
    page.get_by_label("Reason").fill("the gateway is back")
    look("replay-confirm")
    page.locator("[name=steps]").fill("5, 1")
    page.get_by_role("button", name="Make the operation").press("Enter")

    steps = page.locator("[name=steps][aria-invalid=true]")
    expect(page.locator(f"#{described(steps)[0]}")).to_contain_text("Whole numbers from 1")
    expect(page).to_have_title("Error: Replay dead letters | Django site admin")
    look("replay-confirm-error")
    steps.fill("1, 2")
    page.get_by_role("button", name="Make the operation").press("Enter")

    told(page, "Nothing has moved yet")
    expect(content(page)).to_contain_text("All 3 letters were examined.")
    expect(content(page)).to_contain_text("the gateway is back")
    look("operation-planned")
    assert set(DeadLetter.objects.values_list("state", flat=True)) == {"open"}
    press(page, "start")
    told(page, "Started.")
    run_operation(Operation.objects.get().pk, app=app, wait=False)
    page.get_by_role("link", name="Refresh").press("Enter")
    expect(content(page)).to_contain_text("Running: 2 wait for their turn.")
    expect(page.get_by_role("img", name="0 % of the outcomes are known")).to_be_visible()
    look("operation-running")
    press(page, "pause")
    expect(content(page)).to_contain_text("Paused, because somebody paused it.")
    press(page, "cancel")
    expect(content(page)).to_contain_text("Cancel this operation?")
    look("operation-cancel")
    page.get_by_role("button", name="Cancel the operation").press("Enter")
    expect(content(page)).to_contain_text("Cancelled. Nothing more is sent")
    page.goto(f"{OPERATIONS}?state__exact=cancelled")
    expect(content(page)).to_contain_text("2 not sent")
    look("operations")


def test_a_letter_is_edited_compared_and_sent(seen, letters, app) -> None:
    page, look = seen
    log_in(page, "view_deadletter", "replay_deadletter", "view_payload", "edit_deadletter")
    where = f"{LETTERS}{letters[0].pk}/change/"
    page.goto(where)
    page.locator('.object-tools a[href$="/edit/"]').press("Enter")
    argument = page.locator('[name="argument:order_id"]')
    expect(argument).to_have_value("41")
    assert "hunter22" not in page.content()
    look("edit")

    argument.fill("{oops")
    page.get_by_role("button", name="Show the difference").press("Enter")
    wrong = page.locator('[name="argument:order_id"][aria-invalid=true]')
    expect(page.locator(f"#{described(wrong)[0]}")).to_contain_text("it is no JSON")
    look("edit-error")
    wrong.fill("99")
    page.get_by_role("button", name="Show the difference").press("Enter")
    expect(page.get_by_role("row", name="order_id")).to_contain_text("41")
    expect(page.get_by_role("row", name="order_id")).to_contain_text("99")
    look("edit-difference")
    page.get_by_role("button", name="Send it so").press("Enter")

    told(page, "The edited letter is on its way.")
    run_operation(Operation.objects.get().pk, app=app, wait=False)
    assert DeadLetter.objects.get(pk=letters[0].pk).state == "replayed"
    page.reload()
    look("operation-edited")
    page.goto(where)
    expect(page.locator('.field-in_operations a[href*="/dlq/operation/"]')).to_have_count(1)
    look("letter-replayed")
