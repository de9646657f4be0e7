"""The wire form of a dead letter keeps everything that JSON can say, and refuses what is no letter."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from hardening.core.letter import Attempt, Canvas, DeadLetter, Payload, dump_letter, load_letter
from tests.helpers.dlq_letters import attempt, letter, with_payload


@pytest.mark.parametrize(
    "record",
    [
        letter(),
        letter(attempts=()),
        letter(attempts=(attempt(1, started_at=None, failed_at=None), attempt(2))),
        letter(canvas=Canvas(group="g", chord="c", chain=("a", "b"), callbacks=("d",), errbacks=("e",))),
        letter(body=bytes(range(256)), task_name="übung", replay_of="x", replay_number=3, priority=None),
        letter(headers={"nested": {"list": [1, None, True, 1.5, "\x00 \ud800"]}}),
    ],
)
def test_a_letter_comes_back_as_it_was(record) -> None:
    assert load_letter(dump_letter(record)) == record


def test_header_values_that_json_cannot_say_become_text() -> None:
    headers = {
        "id": UUID(int=1),
        "when": datetime(2026, 3, 1, tzinfo=UTC),
        "naive": datetime(2026, 3, 1),
        "bytes": b"a\xff",
        "set": {1},
        "tuple": (1, 2),
    }

    loaded = load_letter(dump_letter(with_payload(letter(), headers=headers)))

    assert loaded.payload.headers == {
        "id": "00000000-0000-0000-0000-000000000001",
        "when": "2026-03-01T00:00:00+00:00",
        "naive": "2026-03-01T00:00:00+00:00",
        "bytes": "a\\xff",
        "set": [1],
        "tuple": [1, 2],
    }


def test_of_a_letter_from_a_newer_release_all_that_is_known_is_read() -> None:
    record = letter()
    plain = json.loads(dump_letter(record))
    for part in (plain, plain["payload"], plain["canvas"], *plain["attempts"]):
        part["of the future"] = {"anything": [1]}

    assert load_letter(json.dumps(plain)) == record


def test_what_an_older_release_did_not_write_has_its_default() -> None:
    record = letter()
    plain = json.loads(dump_letter(record))
    parts = {DeadLetter: plain, Payload: plain["payload"], Canvas: plain["canvas"]}
    for kind, part in [*parts.items(), *((Attempt, each) for each in plain["attempts"])]:
        for each in fields(kind):
            if each.default is not MISSING or each.default_factory is not MISSING:
                part.pop(each.name, None)

    loaded = load_letter(json.dumps(plain))

    assert loaded.canvas == Canvas()
    assert (loaded.payload.body, loaded.payload.headers) == (record.payload.body, {})
    assert (loaded.attempts[0].message, loaded.attempts[0].verdict) == (record.attempts[0].message, "")
    assert (loaded.task_id, loaded.argument_names, loaded.versions) == (record.task_id, (), {})


def test_the_last_attempt_is_the_one_that_ended_the_message() -> None:
    assert letter(attempts=(attempt(1), attempt(2))).last_attempt.number == 2


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\xff", b"1", b"[]", b"{}", b"null", b'"x"', b'{"v": 2}', b'{"v": 1}'),
        json.dumps({**json.loads(dump_letter(letter())), "attempts": [1]}).encode(),
        json.dumps({**json.loads(dump_letter(letter())), "payload": []}).encode(),
        dump_letter(replace(letter(), task_id="x")).replace(b'"body":"', b'"body":"!'),
    ],
)
def test_what_is_no_letter_is_a_value_error(data) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the claim is the class
        load_letter(data)
