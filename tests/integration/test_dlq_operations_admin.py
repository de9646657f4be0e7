"""Operations in the admin: made from letters, shown, run and told, by those who may and by nobody else."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from celery import Celery
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from kombu import Queue

from dlq.admin import operation_items
from dlq.models import DeadLetter, Operation, OperationItem
from dlq.operations.control import start
from dlq.operations.making import make_operation
from dlq.operations.outcomes import settle, succeeded
from dlq.operations.pace import Ramp, Rate, Share, Unlimited, pace_of
from dlq.operations.runner import run_operation
from dlq.operations.states import Kind
from dlq.sink import DatabaseSink
from hardening.core.letter import Canvas
from tests.helpers.admin_app import use_app
from tests.helpers.dlq_letters import attempt, letter

pytestmark = pytest.mark.django_db(transaction=True)

LETTERS, PAGES = "/admin/dlq/deadletter/", "/admin/dlq/operation/"
VIEW, REPLAY, SEE, OPERATE = "view_deadletter", "replay_deadletter", "view_operation", "operate_operation"
CONTROLS = ("examine", "start", "approve", "pause", "resume", "cancel")


@pytest.fixture
def app(monkeypatch) -> Celery:
    """With a broker in memory that has the queues, and nobody reading them."""
    found = Celery("admin", broker=f"memory://{uuid4()}", set_as_current=False)
    found.conf.task_queues = [Queue("payments"), Queue("slow")]
    use_app(monkeypatch, found)
    with found.connection() as opened:
        for queue in found.conf.task_queues:
            queue(opened.default_channel).declare()
    return found


def kept(**fields) -> DeadLetter:
    record = letter(**{"failed_at": timezone.now(), **fields})
    DatabaseSink().keep(record)
    row: DeadLetter = DeadLetter.objects.get(task_id=record.task_id)
    return row


def confirmed(action: str, *rows: DeadLetter, **fields) -> dict:
    return {
        "action": f"{action}_selected",
        "_selected_action": [str(row.pk) for row in rows],
        "select_across": "0",
        "confirmed": "yes",
        "pause_on_same_cause": "on",
        **fields,
    }


def made(*rows: DeadLetter, by: str, **options) -> Operation:
    return make_operation(letters=[row.pk for row in rows], by=by, **options)


def address(operation: Operation, control: str = "change") -> str:
    return f"{PAGES}{operation.pk}/{control}/"


def page(client, where: str) -> str:
    response = client.get(where)
    assert response.status_code == 200
    text: str = response.content.decode()
    return text


def state_of(operation: Operation) -> str:
    return Operation.objects.get(pk=operation.pk).state


@pytest.mark.parametrize(("kind", "state"), [("replay", "replayed"), ("copy", "open")])
def test_letters_go_from_the_list_through_an_operation_to_their_outcome(
    client, user_with, app, kind, state
) -> None:
    rows = [kept(), kept(canvas=Canvas(group="g", chord="shop.tasks.total"))]
    user = user_with(VIEW, REPLAY)

    response = client.post(LETTERS, confirmed(kind, *rows, why="fixed <b>", pace="unlimited"))

    operation = Operation.objects.get()
    assert response.headers["Location"] == address(operation)
    assert (operation.state, operation.kind, operation.total, operation.created_by) == (
        "planned",
        kind,
        2,
        user.get_username(),
    )
    planned = page(client, address(operation))
    assert "Nothing has moved yet" in planned
    assert "fixed &lt;b&gt;" in planned
    assert "All 2 letters were examined." in planned
    assert "no live worker reads its queue" in planned or "its task is not registered here" in planned
    assert "a member of a chord" in planned
    assert set(DeadLetter.objects.values_list("state", flat=True)) == {"open"}

    assert client.post(address(operation, "start")).status_code == 302
    run_operation(operation.pk, app=app, wait=False)
    running = page(client, address(operation))
    assert "The outcomes of 2 are not known yet." in running
    assert set(DeadLetter.objects.values_list("state", flat=True)) == {state}

    for item in OperationItem.objects.all():
        succeeded(letter_id=str(item.letter_id), task_id=item.task_id)
    settle(app=app)
    closed = page(client, address(operation))
    assert "Closed: every outcome is known." in closed
    assert '<a href="?items=succeeded#dlq-items" aria-label="2: succeeded">2</a>' in closed
    for event in ("made", "started", "all sent", "closed: every outcome is known"):
        assert f'<th scope="row">{event}</th>' in closed
    assert f'href="{LETTERS}{rows[0].pk}/change/"' in closed
    assert 'class="dlq-controls"' not in closed
    for row in rows:
        shown = page(client, f"{LETTERS}{row.pk}/change/")
        assert f'href="{address(operation)}"' in shown
        assert LogEntry.objects.filter(object_id=str(row.pk)).count() == 1
    assert [entry.change_message for entry in LogEntry.objects.filter(object_id=str(operation.pk))] == [
        "Started.",
        "Made.",
    ]


@pytest.mark.parametrize(
    ("fields", "pace"),
    [
        ({}, Ramp()),
        ({"pace": "ramp", "steps": "1, 5,25"}, Ramp(steps=(1, 5, 25))),
        ({"pace": "rate", "per_second": "2.5"}, Rate(per_second=2.5)),
        ({"pace": "share", "percent": "30"}, Share(percent=30)),
        ({"pace": "unlimited"}, Unlimited()),
    ],
)
def test_the_questions_of_the_form_are_those_of_the_operation(client, user_with, app, fields, pace) -> None:
    row = kept()
    user_with(VIEW, REPLAY)

    given = {"pause_above_percent": "25", "queue": "slow", "over_limit": "on", **fields}
    client.post(f"{LETTERS}{row.pk}/replay/", {"confirmed": "yes", **given})

    operation = Operation.objects.get()
    assert pace_of(operation.pace) == pace
    assert (operation.queue, operation.pause_above_percent, operation.pause_on_same_cause) == (
        "slow",
        25,
        False,
    )
    assert operation.source == {"kind": "selection", "over_limit": True}


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"pace": "ramp", "steps": "5, 1"}, "steps"),
        ({"pace": "ramp", "steps": "many"}, "steps"),
        ({"pace": "rate", "per_second": ""}, "per_second"),
        ({"pace": "rate", "per_second": "0"}, "per_second"),
        ({"pace": "share", "percent": "nan"}, "percent"),
        ({"pause_above_percent": "101"}, "pause_above_percent"),
        ({"queue": "nobody-knows"}, "queue"),
        ({"pace": "fast"}, "pace"),
    ],
)
def test_what_cannot_be_so_is_said_at_its_field_and_nothing_is_made(
    client, user_with, app, fields, wrong
) -> None:
    row = kept()
    user_with(VIEW, REPLAY)

    response = client.post(f"{LETTERS}{row.pk}/replay/", {"confirmed": "yes", **fields})

    assert response.status_code == 200
    assert f'<ul class="errorlist" id="dlq-{wrong}_error">' in response.content.decode()
    assert not Operation.objects.exists()


def test_all_that_the_filters_allow_is_frozen_and_what_came_since_is_counted(client, user_with, app) -> None:
    wanted = [kept() for _ in range(3)]
    kept(queue="other", task_name="other.task")
    user_with(VIEW, REPLAY)
    where = f"{LETTERS}?task_name=shop.tasks.charge&state__exact=open&age=day"
    asked = client.post(
        where, confirmed("replay", wanted[0], confirmed="", index="0", select_across="1")
    ).content.decode()
    kept()  # Came while the question was on the screen.
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', asked))
    client.post(where, {**fields, "as_of": fields["as_of"].replace("&#x2B;", "+")})
    kept()

    operation = Operation.objects.get()

    assert "<strong>3 letters</strong>" in asked
    assert {item.letter_id for item in OperationItem.objects.all()} == {row.pk for row in wanted}
    assert operation.source["kind"] == "filter"
    assert operation.source["lookups"].keys() == {"task_name", "state", "failed_at__gte"}
    # The one that came while the question was on the screen, and the one that came later.
    assert "+2 since" in page(client, address(operation))


def test_a_search_or_a_selection_says_nothing_of_what_came_since(client, user_with, app) -> None:
    row = kept(root_id="the-root")
    user_with(VIEW, REPLAY)

    client.post(f"{LETTERS}?q=the-root", confirmed("replay", row, select_across="1"))

    operation = Operation.objects.get()
    assert (operation.total, operation.source) == (1, {"kind": "selection", "address": {"q": "the-root"}})
    text = page(client, address(operation))
    assert "what was found by: q = the-root" in text
    assert "since" not in text


def test_without_any_permission_of_operations_neither_list_nor_page_nor_control_is_there(
    client, user_with
) -> None:
    operation = made(kept(), by="somebody")
    user_with(VIEW, "change_operation", "add_operation", "delete_operation", OPERATE)

    assert client.get(PAGES).status_code == 403
    assert client.get(address(operation)).status_code in (302, 403)
    for name in CONTROLS:
        assert client.post(address(operation, name), {"confirmed": "yes"}).status_code == 403
    assert state_of(operation) == "planned"


def test_who_may_only_view_sees_all_of_it_and_no_action_and_a_forged_post_is_forbidden(
    client, user_with
) -> None:
    row = kept()
    planned, running = made(row, by="somebody"), made(row, by="somebody")
    start(running.pk, by="somebody")
    user_with(SEE)

    for operation in (planned, running):
        text = page(client, address(operation))
        assert "somebody" in text
        assert 'class="dlq-controls"' not in text
        assert f"{LETTERS}{row.pk}/change/" not in text
        for name in CONTROLS:
            assert client.post(address(operation, name), {"confirmed": "yes"}).status_code == 403
    assert (state_of(planned), state_of(running), LogEntry.objects.count()) == ("planned", "running", 0)


def test_who_makes_operations_sees_and_runs_their_own_only(client, user_with) -> None:
    user = user_with(VIEW, REPLAY)
    own, other = made(kept(), by=user.get_username()), made(kept(), by="somebody")

    listed = page(client, PAGES)
    assert address(own) in listed
    assert address(other) not in listed
    assert client.get(address(other)).status_code == 302
    assert client.post(address(other, "start")).status_code == 403
    for name, state in (("start", "running"), ("pause", "paused"), ("resume", "running")):
        assert client.post(address(own, name)).status_code == 302
        assert state_of(own) == state
    assert client.post(address(own, "cancel")).status_code == 200  # It asks first.
    assert state_of(own) == "running"
    assert client.post(address(own, "cancel"), {"confirmed": "yes"}).status_code == 302
    assert state_of(own) == "cancelled"
    assert state_of(other) == "planned"


def test_an_operator_runs_the_operations_of_others_without_replaying_letters(client, user_with) -> None:
    operation = made(kept(), by="somebody")
    user_with(SEE, OPERATE)

    client.post(address(operation, "start"))

    assert state_of(operation) == "running"
    assert client.post(LETTERS, confirmed("replay")).status_code == 403


def test_the_maker_cannot_approve_and_a_second_person_can(client, user_with, settings) -> None:
    settings.DLQ = {"APPROVAL_ABOVE": 1}
    rows = [kept(), kept()]
    maker = user_with(VIEW, REPLAY, SEE, OPERATE)
    operation = made(*rows, by=maker.get_username())
    assert "Ask for approval" in page(client, address(operation))

    told = client.post(address(operation, "start"), follow=True).content.decode()

    assert "somebody else must approve it" in told
    assert "you cannot approve it yourself" in told
    assert address(operation, "approve") not in told
    assert client.post(address(operation, "approve"), {"confirmed": "yes"}).status_code == 403
    assert state_of(operation) == "awaiting"
    user_with(VIEW, REPLAY)
    assert client.post(address(operation, "approve"), {"confirmed": "yes"}).status_code == 403
    second = user_with(SEE, OPERATE)
    assert address(operation, "approve") in page(client, address(operation))
    assert client.post(address(operation, "approve")).status_code == 200  # It asks first.
    assert state_of(operation) == "awaiting"
    client.post(address(operation, "approve"), {"confirmed": "yes"})
    assert (state_of(operation), Operation.objects.get().approved_by) == ("running", second.get_username())


def test_letters_of_withheld_tasks_are_in_no_operation_of_such_a_user_and_are_started_by_none(
    client, user_with, app, settings
) -> None:
    settings.DLQ = {"TASK_PERMISSIONS": {"billing.*": {"permission": "shop.billing", "hidden": True}}}
    secret, plain = kept(task_name="billing.tasks.charge"), kept()
    other = made(secret, plain, by="somebody")
    user_with(VIEW, REPLAY, SEE, OPERATE)

    client.post(LETTERS, confirmed("replay", secret, plain))

    own = Operation.objects.exclude(pk=other.pk).get()
    assert [item.letter_id for item in OperationItem.objects.filter(operation=own)] == [plain.pk]
    text = page(client, address(other))
    assert (str(plain.pk) in text, str(secret.pk) in text, "billing" in text) == (True, False, False)
    assert address(other, "start") not in text
    assert client.post(address(other, "start")).status_code == 403
    assert client.post(address(own, "start")).status_code == 302
    start(other.pk, by="somebody")
    assert client.post(address(other, "pause")).status_code == 302
    assert client.post(address(other, "resume")).status_code == 403
    assert (state_of(own), state_of(other)) == ("running", "paused")


def test_who_comes_second_is_told_and_nothing_is_logged(client, user_with) -> None:
    operation = made(kept(), by="somebody")
    start(operation.pk, by="somebody")
    user_with(SEE, OPERATE)

    text = client.post(address(operation, "start"), follow=True).content.decode()

    assert "Nothing was changed, because somebody was faster: Running" in text
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_is_no_link(client, user_with, name) -> None:
    operation = made(kept(), by="somebody")
    user_with(SEE, OPERATE, VIEW, REPLAY)

    assert client.get(address(operation, name)).status_code == 405
    assert state_of(operation) == "planned"


def test_a_post_without_a_csrf_token_is_forbidden(django_user_model) -> None:
    from django.test import Client

    operation = made(kept(), by="somebody")
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(django_user_model.objects.create_superuser("root", password="x"))

    assert strict.post(address(operation, "start")).status_code == 403
    assert state_of(operation) == "planned"


def test_an_operation_cannot_be_saved_added_or_deleted(client, django_user_model) -> None:
    operation = made(kept(), by="somebody")
    client.force_login(django_user_model.objects.create_superuser("root", password="x"))

    assert client.post(address(operation), {"state": "closed"}).status_code == 403
    assert client.post(address(operation, "delete"), {"post": "yes"}).status_code == 403
    assert client.get(f"{PAGES}add/").status_code == 403
    assert client.get(address(operation, "history")).status_code == 200
    assert client.get(f"{PAGES}{uuid4()}/change/").status_code == 302
    assert client.get(f"{PAGES}no-id/change/").status_code == 302


def test_a_dry_run_goes_on_where_it_stopped(client, user_with, app, monkeypatch) -> None:
    monkeypatch.setattr("dlq.admin.replaying.EXAMINE_SECONDS", 0)
    rows = [kept(), kept()]
    user_with(VIEW, REPLAY)
    client.post(LETTERS, confirmed("replay", *rows))
    operation = Operation.objects.get()

    assert "0 of 2 letters were examined." in page(client, address(operation))
    text = client.post(address(operation, "examine"), follow=True).content.decode()
    assert "All 2 letters were examined." in text


def test_a_letter_that_comes_back_is_linked_both_ways(client, user_with, app) -> None:
    row = kept()
    user_with(VIEW, REPLAY, SEE)
    operation = made(row, by="somebody", pace=Unlimited())
    start(operation.pk, by="somebody")
    run_operation(operation.pk, app=app, wait=False)
    again = kept(
        task_id=row.replay_task_id, delivery_key=row.delivery_key, replay_number=1, replay_of=str(row.pk)
    )

    text = page(client, f"{address(operation)}?items=came_back")

    assert "came back, same cause" in text
    assert f"{LETTERS}{again.pk}/change/" in text
    before, after = (page(client, f"{LETTERS}{pk}/change/") for pk in (row.pk, again.pk))
    assert f"{LETTERS}{again.pk}/change/" in before.partition("field-in_operations")[2]
    assert f"{LETTERS}{row.pk}/change/" in after.partition("field-came_from")[2]
    DeadLetter.objects.filter(pk=row.pk).delete()
    assert str(row.pk) in page(client, address(operation))


def test_items_are_paged_by_position_within_a_state(client, user_with, monkeypatch) -> None:
    monkeypatch.setattr(operation_items, "PAGE", 2)
    operation = made(*(kept() for _ in range(5)), by="somebody")
    user_with(SEE)

    def positions(query: str) -> list[str]:
        text = page(client, address(operation) + query)
        return re.findall(r'<tr>\n<td class="dlq-number">(\d+)</td>', text)

    assert positions("") == ["1", "2"]
    assert 'href="?items=&amp;from=2#dlq-items">Next' in page(client, address(operation))
    assert positions("?items=&from=2") == ["3", "4"]
    assert 'href="?items=&amp;from=0#dlq-items">Previous' in page(client, address(operation) + "?from=2")
    assert positions("?items=waiting&from=4") == ["5"]
    assert positions("?items=lost") == []
    assert positions("?items=nonsense&from=-1%00") == ["1", "2"]


def test_the_page_loads_itself_again_only_when_asked_to(client, user_with) -> None:
    operation = made(kept(), by="somebody")
    user_with(SEE)

    assert 'http-equiv="refresh"' not in page(client, address(operation))
    assert '<meta http-equiv="refresh" content="5">' in page(client, address(operation) + "?live=1")
    Operation.objects.update(state="closed", closed_at=timezone.now())
    assert 'http-equiv="refresh"' not in page(client, address(operation) + "?live=1")


def test_the_number_of_queries_does_not_grow_with_letters_or_operations(client, user_with, app) -> None:
    user_with(VIEW, REPLAY, SEE, OPERATE)

    def queries(where: str) -> int:
        page(client, where)
        with CaptureQueriesContext(
            connection,
        ) as seen:
            page(client, where)
        return len(seen)

    small = made(kept(), by="somebody")
    of_one, list_of_one = queries(address(small)), queries(PAGES)
    large = made(*(kept() for _ in range(60)), by="somebody")
    for _ in range(5):
        made(kept(), by="somebody")

    assert queries(address(large)) <= of_one
    assert queries(PAGES) == list_of_one
    assert of_one < 25


def test_text_of_tasks_and_people_is_escaped(client, user_with) -> None:
    evil = "<script>alert(1)</script>"
    row = kept(
        task_name=evil,
        queue=evil,
        attempts=(attempt(1, message=evil, error_class=evil),),
        canvas=Canvas(chain=(evil,), chord=evil),
    )
    operation = made(
        row,
        by=evil,
        why=evil,
        queue=evil,
        force_queue=True,
        kind=Kind.COPY,
        source={"kind": "filter", "lookups": {"task_name": evil, "fingerprint": evil}},
    )
    OperationItem.objects.update(error=evil, verdict=evil, state="not_sent")
    Operation.objects.update(state="paused", paused_because=evil[:16], pause_detail=evil)
    user_with(VIEW, REPLAY, SEE, OPERATE)

    for text in (
        page(client, address(operation)),
        page(client, PAGES),
        page(client, f"{LETTERS}{row.pk}/change/"),
        client.post(address(operation, "cancel")).content.decode(),
    ):
        assert evil not in text
        assert "&lt;script&gt;" in text


@pytest.mark.parametrize(
    "query", ["items__sealed__contains=1", "created_by=x", "state__exact=%00", "source__contains=x"]
)
def test_the_list_answers_no_question_but_those_of_its_filters(client, user_with, query) -> None:
    made(kept(), by="somebody")
    user_with(SEE)

    assert client.get(f"{PAGES}?{query}").status_code == 400
    assert client.get(f"{PAGES}?state__exact=planned&kind__exact=replay").status_code == 200


def test_empty_states_say_what_to_do(client, user_with) -> None:
    user_with(SEE)
    assert "No operation was made yet" in page(client, PAGES)
    operation = made(by="somebody")
    assert "There is no letter in this operation." in page(client, address(operation))
