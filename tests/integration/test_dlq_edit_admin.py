"""Edit and replay in the admin: what may be changed is, what is hidden stays hidden, and one editor wins."""

from __future__ import annotations

import html
import json
import re
from uuid import uuid4

import pytest
from celery import Celery
from django.contrib.admin.models import LogEntry
from django.utils import timezone
from kombu import Queue

from dlq.models import DeadLetter, Operation, OperationItem
from dlq.operations.editing import make_edit_operation
from dlq.operations.runner import run_operation
from dlq.replay import replay
from dlq.sink import DatabaseSink
from tests.helpers.admin_app import use_app
from tests.helpers.dlq_letters import body_of, letter

pytestmark = pytest.mark.django_db(transaction=True)

LETTERS, OPERATIONS = "/admin/dlq/deadletter/", "/admin/dlq/operation/"
EDITOR = ("view_deadletter", "replay_deadletter", "view_payload", "edit_deadletter")


@pytest.fixture
def app(monkeypatch) -> Celery:
    found = Celery("editing", broker=f"memory://{uuid4()}", set_as_current=False)
    found.conf.task_queues = [Queue("payments"), Queue("slow")]

    @found.task(name="shop.tasks.charge", shared=False)
    def charge(order_id: int, password: str, *, card_number: str = "", address: dict | None = None) -> None:
        """Never run here."""

    use_app(monkeypatch, found)
    with found.connection() as opened:
        for queue in found.conf.task_queues:
            bound = queue(opened.default_channel)
            bound.declare()
            bound.purge()  # Brokers in memory are one.
    return found


def kept(**fields) -> DeadLetter:
    body = body_of(41, "hunter22", card_number="4111111111111111", address={"town": "Kiel", "token": "t0k3n"})
    record = letter(**{"failed_at": timezone.now(), "body": body, **fields})
    DatabaseSink().keep(record)
    row: DeadLetter = DeadLetter.objects.get(task_id=record.task_id)
    return row


def address(row: DeadLetter) -> str:
    return f"{LETTERS}{row.pk}/edit/"


def given(row: DeadLetter, **arguments: str) -> dict[str, str]:
    shown = {"order_id": "41", "address": json.dumps({"town": "Kiel", "token": "[redacted]"})}
    return {f"argument:{name}": value for name, value in (shown | arguments).items()}


def hidden_fields(text: str) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', text)
    return {name: html.unescape(value) for name, value in found if name != "csrfmiddlewaretoken"}


def sent(app: Celery, queue: str = "payments") -> list:
    with app.connection() as opened:
        bound = Queue(queue)(opened.default_channel)
        return list(iter(lambda: bound.get(no_ack=True), None))


def test_an_argument_is_edited_compared_and_sent_and_what_is_hidden_is_sent_as_it_was(
    client, user_with, app
) -> None:
    row = kept()
    user = user_with(*EDITOR)

    form = client.get(address(row)).content.decode()
    assert 'name="argument:order_id"' in form
    assert row.delivery_key in form
    assert row.replay_task_id in form
    for name in ("password", "card_number"):
        assert f'name="argument:{name}"' not in form

    compared = client.post(
        address(row), {**given(row, order_id="42"), "why": "wrong order", "queue": "slow"}
    ).content.decode()
    assert '<del><pre class="dlq-text">41</pre></del>' in compared
    assert '<ins><pre class="dlq-text">42</pre></ins>' in compared
    assert not Operation.objects.exists()

    response = client.post(address(row), {**hidden_fields(compared), "step": "send"})
    operation = Operation.objects.get()
    assert response.headers["Location"] == f"{OPERATIONS}{operation.pk}/change/"
    assert (operation.state, operation.why, operation.created_by) == (
        "running",
        "wrong order",
        user.get_username(),
    )
    run_operation(operation.pk, app=app, wait=False)
    (message,) = sent(app, "slow")
    args, kwargs, _embed = json.loads(message.body)
    assert args == [42, "hunter22"]
    assert kwargs == {
        "card_number": "4111111111111111",
        "address": {"town": "Kiel", "token": "t0k3n"},
    }
    assert (message.headers["id"], message.headers["root_id"]) == (row.replay_task_id, row.root_id)
    row.refresh_from_db()
    assert row.state == "replayed"
    text = client.get(f"{OPERATIONS}{operation.pk}/change/").content.decode()
    assert '<ins><pre class="dlq-text">42</pre></ins>' in text
    assert LogEntry.objects.get(object_id=str(row.pk)).change_message == (
        f"Edited (order_id), in operation {operation.pk}."
    )
    for shown in (form, compared, text, client.get(f"{LETTERS}{row.pk}/change/").content.decode()):
        assert not any(secret in shown for secret in ("hunter22", "4111111111111111", "t0k3n"))


def test_the_form_can_be_gone_back_to_with_what_was_typed(client, user_with, app) -> None:
    row = kept()
    user_with(*EDITOR)
    compared = client.post(address(row), given(row, order_id="42")).content.decode()

    text = client.post(address(row), {**hidden_fields(compared), "step": "back"}).content.decode()

    assert re.search(r'name="argument:order_id"[^>]*>\n42</textarea>', text)
    assert not Operation.objects.exists()


@pytest.mark.parametrize("missing", EDITOR)
def test_each_of_the_permissions_is_needed_for_each_step(client, user_with, app, missing) -> None:
    row = kept()
    user_with(*(name for name in EDITOR if name != missing))

    assert client.get(address(row)).status_code == 403
    for step in ("difference", "send"):
        assert client.post(address(row), {**given(row, order_id="42"), "step": step}).status_code == 403
    assert not Operation.objects.exists()
    if missing != "view_deadletter":
        assert address(row) not in client.get(f"{LETTERS}{row.pk}/change/").content.decode()


@pytest.mark.parametrize("step", ["difference", "send"])
@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("order_id", "{not json"),
        ("order_id", ""),
        ("address", '{"town": "Kiel", "token": "mine"}'),
        ("address", '{"town": "Kiel"}'),
        ("address", '{"town": "[redacted]", "token": "[redacted]"}'),
    ],
)
def test_what_cannot_be_sent_so_is_said_at_its_argument(client, user_with, app, argument, text, step) -> None:
    row = kept()
    user_with(*EDITOR)

    page = client.post(address(row), {**given(row, **{argument: text}), "step": step}).content.decode()

    assert 'class="errornote" role="alert"' in page
    assert not Operation.objects.exists()
    if argument == "address":
        field = re.search(r'<textarea[^>]*name="argument:address"[^>]*>', page)
        assert field is not None
        assert 'aria-invalid="true"' in field[0]
        described = re.search(r'aria-describedby="(\S+) ', field[0])
        assert described is not None
        assert f'id="{described[1]}" role="alert"' in page


def test_what_is_locked_is_not_read_from_a_request(client, user_with, app) -> None:
    row = kept()
    user_with(*EDITOR)
    forged = {"argument:password": '"mine"', "argument:card_number": '"0"', "argument:delivery_key": '"x"'}

    client.post(address(row), {**given(row, order_id="42"), **forged, "step": "send"})

    run_operation(Operation.objects.get().pk, app=app, wait=False)
    (message,) = sent(app)
    args, kwargs, _embed = json.loads(message.body)
    assert args[:2] == [42, "hunter22"]
    assert kwargs["card_number"] == "4111111111111111"


def test_of_two_editors_the_second_is_told_and_sends_nothing(client, user_with, app) -> None:
    row = kept()
    first = user_with(*EDITOR)
    client.post(address(row), {**given(row, order_id="42"), "step": "send"})
    user_with(*EDITOR)

    late = client.post(address(row), {**given(row, order_id="43"), "step": "send"})

    assert late.status_code == 409
    assert f"{first.get_username()} was faster" in late.content.decode()
    run_operation(Operation.objects.get().pk, app=app, wait=False)
    assert "was faster" in client.get(address(row)).content.decode()
    assert len(sent(app)) == 1


def test_of_two_editors_at_the_same_moment_one_is_sent_and_the_other_is_told_by_its_operation(
    client, user_with, app
) -> None:
    row = kept()
    user_with(*EDITOR, "view_operation")
    rival, _edit = make_edit_operation(row, {"order_id": "43", **locked(row)}, by="rival", app=app)
    client.post(address(row), {**given(row, order_id="42"), "step": "send"})
    Operation.objects.filter(pk=rival.pk).update(state="running", started_at=timezone.now())

    for operation in Operation.objects.order_by("-created_at"):
        run_operation(operation.pk, app=app, wait=False)

    (message,) = sent(app)
    assert json.loads(message.body)[0][0] == 42
    assert OperationItem.objects.get(operation=rival).state == "not_sent"
    text = client.get(f"{OPERATIONS}{rival.pk}/change/").content.decode()
    assert "it is not open any more" in text or "another replay has it" in text


def locked(row: DeadLetter) -> dict[str, str]:
    from dlq.operations.editing import editable

    return {field.name: field.value_json for field in editable(row).fields if field.name != "order_id"}


def test_a_letter_that_is_not_open_cannot_be_edited(client, user_with, app) -> None:
    row = kept()
    replay([row.pk], by="somebody", app=app)
    OperationItem.objects.update(state="succeeded")
    user_with(*EDITOR)

    assert "This letter is replayed" in client.get(address(row)).content.decode()
    assert client.post(address(row), {**given(row), "step": "send"}).status_code == 409
    assert address(row) not in client.get(f"{LETTERS}{row.pk}/change/").content.decode()


def test_a_letter_whose_task_nobody_knows_says_why_it_cannot_be_edited(client, user_with, app) -> None:
    row = kept(task_name="other.<b>task")
    user_with(*EDITOR)

    text = client.get(address(row)).content.decode()

    assert "This letter cannot be edited here: the task other.&lt;b&gt;task is not registered" in text
    assert "<textarea" not in text


def test_an_unknown_queue_is_said_at_its_field(client, user_with, app) -> None:
    row = kept()
    user_with(*EDITOR)

    text = client.post(address(row), {**given(row), "queue": "nobody<b>", "step": "send"}).content.decode()

    assert 'id="dlq-queue_error"><li>the Celery app knows no queue &#x27;nobody&lt;b&gt;&#x27;' in text
    assert not Operation.objects.exists()


def test_hostile_arguments_are_escaped(client, user_with, app) -> None:
    evil = '</textarea><script>alert("1")</script>'
    row = kept(body=body_of(evil, "hunter22", address={"town": evil}))
    user_with(*EDITOR)

    edited = given(row, order_id=json.dumps(f"{evil}!"), address=json.dumps({"town": evil})) | {"why": evil}

    pages = [
        client.get(address(row)).content.decode(),
        client.post(address(row), edited).content.decode(),
        client.post(address(row), {**edited, "argument:order_id": evil}).content.decode(),
    ]
    client.post(address(row), {**edited, "step": "send"})
    pages.append(client.get(f"{OPERATIONS}{Operation.objects.get().pk}/change/").content.decode())

    for text in pages:
        assert "<script>alert(" not in text
        assert "&lt;script&gt;" in text


def test_edited_values_are_not_for_who_may_not_see_payloads(client, user_with, app) -> None:
    row = kept()
    user_with(*EDITOR)
    client.post(address(row), {**given(row, order_id='"new-value"'), "step": "send"})
    operation = Operation.objects.get()
    user_with("view_operation", "view_deadletter")

    text = client.get(f"{OPERATIONS}{operation.pk}/change/").content.decode()
    text += client.get(OPERATIONS).content.decode()

    assert "a letter whose arguments were edited" in text
    assert "new-value" not in text
