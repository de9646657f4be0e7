"""What is sent for a letter, what goes on after it, and what of it can be edited."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from django.utils import timezone

from dlq.errors import NotEdited, NotRepaired
from dlq.models import DeadLetter
from dlq.operations.canvas import Level, canvas_of_row, continuation
from dlq.operations.editing import edit, editable
from dlq.operations.messages import copy_task_id, outgoing
from dlq.operations.publishing import Outgoing
from dlq.operations.states import Kind
from dlq.rows import letter_row
from hardening.core.identity import KEY_HEADER, REPLAY_HEADER
from hardening.core.letter import Canvas, Payload
from hardening.core.letter import DeadLetter as LetterRecord
from hardening.core.redaction import MASK
from tests.helpers.dlq_letters import body_of, letter, with_payload

OPERATION, LETTER = uuid4(), uuid4()
MEMBER = {"callbacks": None, "errbacks": None, "chain": None, "chord": {"task": "shop.tasks.sum"}}


def sent(record: LetterRecord, kind: Kind = Kind.COPY) -> Outgoing:
    task_id = copy_task_id(OPERATION, LETTER)
    return outgoing(
        record, kind=kind, letter_id=LETTER, task_id=task_id, queue=None, is_fanout=lambda _: False
    )


def test_a_copy_is_new_work_and_the_same_copy_however_often_it_is_made() -> None:
    record = letter(headers={"group": "g", "group_index": 3, "parent_id": "p"})

    message, again = sent(record), sent(record)

    assert message == again
    headers = message.headers
    assert headers["id"] == headers[KEY_HEADER] == headers["root_id"] == message.task_id
    assert headers[REPLAY_HEADER] == 0
    assert (headers["group"], headers["group_index"], headers["parent_id"]) == (None, None, None)
    assert copy_task_id(uuid4(), LETTER) != message.task_id


def test_a_copy_of_a_member_of_a_chord_is_in_no_chord() -> None:
    record = letter(body=json.dumps([[1], {}, MEMBER]).encode(), canvas=Canvas(chord="shop.tasks.sum"))

    assert json.loads(sent(record).body)[2] == {**MEMBER, "chord": None}
    assert sent(record, Kind.REPLAY).body == record.payload.body
    with pytest.raises(NotRepaired, match="chord"):
        sent(with_payload(record, content_type="application/x-python-serialize"))


def test_a_copy_of_protocol_1_has_its_id_in_its_body() -> None:
    body = json.dumps({"id": "old", "task": "shop.tasks.charge", "args": [1], "kwargs": {}}).encode()
    payload = Payload(body=body, content_type="application/json", content_encoding="utf-8")

    message = sent(letter(payload=payload))

    assert json.loads(message.body)["id"] == message.task_id


@pytest.mark.parametrize("kind", Kind)
def test_it_is_said_what_goes_on_after_a_member_of_a_workflow(kind: Kind) -> None:
    canvas = Canvas(
        group="g", chord="shop.sum", chain=("shop.third", "shop.second"), callbacks=("a",), errbacks=("b",)
    )

    notes = {note.topic: note for note in continuation(letter(canvas=canvas), kind)}

    assert {topic: note.goes_on for topic, note in notes.items()} == {
        "chain": True,
        "callbacks": True,
        "errbacks": True,
        "chord": False,
    }
    assert "shop.second, shop.third" in str(notes["chain"].text)
    assert notes["chord"].level is Level.WARNING
    assert "shop.sum" in str(notes["chord"].text)


def test_a_member_of_a_plain_group_and_of_nothing() -> None:
    assert [note.topic for note in canvas_of_row({"group": "g"}, Kind.REPLAY)] == ["group"]
    assert canvas_of_row(None, Kind.REPLAY) == canvas_of_row({}, Kind.COPY) == ()


# Editing


@pytest.fixture(scope="module")
def app() -> Celery:
    made = Celery("editing", broker="memory://", set_as_current=False)

    @made.task(name="shop.tasks.charge")
    def charge(order_id: int, password: str, *, card_number: str = "", note: Any = None) -> None: ...

    @made.task(name="shop.tasks.many")
    def many(first: int, *rest: int, **options: Any) -> None: ...

    made.finalize()
    return made


def row_of(*args: Any, **kwargs: Any) -> DeadLetter:
    task = kwargs.pop("task_name", "shop.tasks.charge")
    names = kwargs.pop("argument_names", ("order_id", "password"))
    record = letter(body=body_of(*args, **kwargs), task_name=task, argument_names=names)
    return letter_row(record, keys=(), now=timezone.now())


def shown(row: DeadLetter, app: Celery) -> dict[str, str]:
    return {field.name: field.value_json for field in editable(row, app=app).fields}


def sent_body(row: DeadLetter, app: Celery, **changes: str) -> Any:
    edited = edit(row, {**shown(row, app), **changes}, app=app)
    return json.loads(edited.record.payload.body)[:2]


def test_arguments_are_shown_by_the_names_of_the_signature_with_hidden_values_locked(app) -> None:
    row = row_of(41, "hunter22", card_number="4111", note={"token": "t0ken", "text": "x"})

    fields = {field.name: field for field in editable(row, app=app).fields}

    assert list(fields) == ["order_id", "password", "card_number", "note"]
    assert [name for name, field in fields.items() if field.locked] == ["password", "card_number"]
    assert (fields["note"].masked, fields["note"].locked) == (True, False)
    assert fields["order_id"].value_json == "41"
    assert "hunter22" not in str(fields)
    assert "t0ken" not in str(fields)


def test_what_is_hidden_is_sent_as_it_was_and_the_diff_shows_what_was_changed(app) -> None:
    row = row_of(41, "hunter22", card_number="4111", note={"token": "t0ken", "text": "x"})
    note = json.dumps({"token": MASK, "text": "y"})

    edited = edit(row, {**shown(row, app), "order_id": "42", "note": note}, app=app)

    assert json.loads(edited.record.payload.body)[:2] == [
        [42, "hunter22"],
        {"card_number": "4111", "note": {"token": "t0ken", "text": "y"}},
    ]
    assert [(change.name, change.old, change.new) for change in edited.changes] == [
        ("order_id", "41", "42"),
        ("note", f'{{"text": "x", "token": "{MASK}"}}', f'{{"text": "y", "token": "{MASK}"}}'),
    ]
    assert "hunter22" not in edited.record.payload.headers["argsrepr"]


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"password": '"other"'}, "password"),
        ({"password": ""}, "password"),
        ({"note": '{"text": "x"}'}, "note"),
        ({"note": '{"token": "mine", "text": "x"}'}, "note"),
        ({"note": f'["{MASK}"]'}, "note"),
        ({"order_id": "{"}, "order_id"),
        ({"nobody": "1"}, "nobody"),
    ],
)
def test_a_hidden_value_cannot_be_changed_moved_or_removed(app, changes, wrong) -> None:
    row = row_of(41, "hunter22", note={"token": "t0ken", "text": "x"})

    with pytest.raises(NotEdited) as refused:
        edit(row, {**shown(row, app), **changes}, app=app)

    assert set(refused.value.errors) == {wrong}


def test_arguments_that_do_not_bind_can_be_made_to_and_those_left_wrong_are_refused(app) -> None:
    row = row_of(41, old_name=1)

    fields = {field.name: field for field in editable(row, app=app).fields}

    assert fields["old_name"].unknown
    assert edit(row, {"order_id": "41", "password": '"new"'}, app=app).changes
    with pytest.raises(NotEdited, match="required"):
        edit(row, {"note": "1"}, app=app)


def test_further_arguments_are_a_list_and_an_object(app) -> None:
    row = row_of(1, 2, 3, color="red", task_name="shop.tasks.many", argument_names=("first",))

    assert {name: json.loads(text) for name, text in shown(row, app).items()} == {
        "first": 1,
        "*rest": [2, 3],
        "**options": {"color": "red"},
    }
    assert sent_body(row, app, **{"*rest": "[5]"}) == [[1, 5], {"color": "red"}]


def test_a_body_that_is_no_json_and_a_task_that_nobody_knows_have_their_reason(app) -> None:
    pickled = letter_row(
        with_payload(letter(), content_type="application/x-python-serialize"), keys=(), now=timezone.now()
    )

    assert "JSON" in editable(pickled, app=app).problem
    assert "not registered" in editable(row_of(1, task_name="gone.task"), app=app).problem
