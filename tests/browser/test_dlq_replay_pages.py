"""A group is replayed step by step through a real Redis, watched in a browser to its last outcome."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from django.utils import timezone
from kombu import Queue
from playwright.sync_api import Page, expect

from dlq.groups.counting import count_new_letters
from dlq.models import LetterGroup, Operation
from dlq.operations.outcomes import settle
from dlq.operations.runner import run_operation
from dlq.sink import DatabaseSink
from hardening.core.events import replay_succeeded, tell
from tests.browser.visiting import content, log_in, looks_right, told
from tests.helpers.admin_app import use_app
from tests.helpers.dlq_letters import attempt, letter
from tests.helpers.operating import failed_again

pytestmark = pytest.mark.django_db(transaction=True)

GROUPS = "/admin/dlq/lettergroup/"
DECLINED = attempt(1, message="card declined")


@pytest.fixture
def app(monkeypatch, redis_url) -> Celery:
    found = Celery("browser", broker=redis_url, set_as_current=False)
    found.conf.task_queues = [Queue("payments")]

    @found.task(name="shop.tasks.charge", shared=False)
    def charge(order_id: int, password: str, *, card_number: str = "") -> None:
        """Never run here."""

    use_app(monkeypatch, found)
    return found


def kept(count: int) -> None:
    for _ in range(count):
        DatabaseSink().keep(letter(attempts=(DECLINED,), failed_at=timezone.now()))
    count_new_letters()


class StandIn:
    """Stands for the workers: takes what lies in Redis, and tells what became of it as they do."""

    def __init__(self, app: Celery) -> None:
        self.app = app

    def taken(self) -> list[Any]:
        """All that lies there now."""
        found = []
        with self.app.connection() as connection:
            queue = Queue("payments")(connection.default_channel)
            while (message := queue.get()) is not None:
                message.ack()
                found.append(message)
        return found

    def succeed(self, messages: list[Any]) -> None:
        for message in messages:
            tell(
                replay_succeeded, letter_id=message.headers["hardening_letter"], task_id=message.headers["id"]
            )

    def fail(self, messages: list[Any]) -> None:
        for message in messages:
            outgoing = SimpleNamespace(
                headers=message.headers, task_id=message.headers["id"], body=message.body
            )
            again = failed_again(outgoing, attempts=(DECLINED,), failed_at=timezone.now())  # type: ignore[arg-type]
            DatabaseSink().keep(again)
        count_new_letters()


def press(page: Page, control: str) -> None:
    page.locator(f'.dlq-controls form[action$="/{control}/"] button').click()


def test_a_group_is_replayed_by_a_ramp_that_is_paused_and_resumed_until_every_outcome_is_known(
    page, app
) -> None:
    kept(10)
    log_in(page, *("view_deadletter", "triage_deadletter", "replay_deadletter", "view_operation"))
    page.goto(GROUPS)
    page.get_by_role("link", name="CardDeclined").click()
    page.get_by_role("button", name="Replay open letters of this group").click()
    told(page, "Nothing was sent yet.")
    page.get_by_role("button", name="Examine").click()
    expect(content(page)).to_contain_text("All 10 letters were examined.")
    operation = Operation.objects.get()
    workers = StandIn(app)

    def step() -> list[Any]:
        """One round of a runner, and the page after it."""
        run_operation(operation.pk, app=app, wait=False)
        settle(app=app)
        page.reload()
        return workers.taken()

    assert step() == []
    press(page, "start")
    told(page, "Started.")
    kept(2)
    first = step()
    assert len(first) == 1
    expect(content(page)).to_contain_text("+2 since")
    assert step() == [], "the next step waits for the outcome of this one"
    workers.succeed(first)

    press(page, "pause")
    expect(content(page)).to_contain_text("Paused, because somebody paused it.")
    assert step() == []
    looks_right(page, "ramp-paused")
    press(page, "resume")
    told(page, "Resumed.")
    second = step()
    assert len(second) == 2
    workers.succeed(second)
    third = step()
    assert len(third) == 5
    expect(content(page)).to_contain_text("30 % of the outcomes of 10 are known.")
    workers.succeed(third)
    fourth = step()
    assert len(fourth) == 2
    workers.succeed(fourth[:1])
    workers.fail(fourth[1:])

    assert step() == []
    expect(content(page)).to_contain_text("Closed: every outcome is known.")
    expect(page.get_by_role("row", name="came back, same cause")).not_to_have_count(0)
    expect(page.get_by_role("link", name="9: succeeded")).to_be_visible()
    expect(page.locator(".dlq-controls")).to_have_count(0)
    looks_right(page, "ramp-closed")
    page.get_by_role("link", name="1: came back, same cause").click()
    expect(page.locator(".dlq-items tbody tr")).to_have_count(1)
    page.locator(".dlq-items td a", has_text="group").last.click()
    expect(content(page)).to_contain_text("letters so far")
    assert LetterGroup.objects.count() == 1


def test_an_operation_whose_cause_returns_stops_by_itself_and_says_so(page, app) -> None:
    kept(3)
    log_in(page, *("view_deadletter", "replay_deadletter", "view_operation"))
    page.goto(GROUPS)
    page.get_by_role("link", name="CardDeclined").click()
    page.get_by_role("button", name="Replay open letters of this group").click()
    told(page, "Nothing was sent yet.")
    press(page, "start")
    told(page, "Started.")
    operation, workers = Operation.objects.get(), StandIn(app)
    run_operation(operation.pk, app=app, wait=False)
    workers.fail(workers.taken())
    run_operation(operation.pk, app=app, wait=False)

    page.reload()
    expect(page.get_by_role("status")).to_contain_text("Paused, because")
    expect(page.get_by_role("status")).to_contain_text("same cause")
    assert workers.taken() == []
    looks_right(page, "operation-stopped")
    press(page, "cancel")
    page.get_by_role("button", name="Cancel the operation").click()
    expect(content(page)).to_contain_text("Cancelled. Nothing more is sent")
