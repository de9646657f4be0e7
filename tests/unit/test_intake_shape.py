"""What is no task is told before Celery sees it, and no input whatever makes that raise."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from celery import Celery
from kombu.message import Message

from hardening.capture import Delivery, delivery_of
from hardening.core.letter import dump_letter, load_letter
from hardening.core.reasons import Reason
from hardening.intake.consumer import times_of
from hardening.intake.letters import ODD_HEADERS, raw_letter
from hardening.intake.reading import read
from hardening.intake.shape import MOST_DEPTH, embedded_of, flaw_of, is_too_deep

GOOD_HEADERS: dict[Any, Any] = {
    "lang": "py",
    "task": "shop.charge",
    "id": "task-1",
    "shadow": None,
    "eta": None,
    "expires": None,
    "retries": 0,
    "timelimit": [None, None],
    "stamped_headers": None,
    "stamps": {},
}
GOOD_BODY = [[1], {"a": 2}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
JSON = ["application/json"]


@pytest.fixture(scope="module")
def app():
    with Celery("shapes", broker="memory://", set_as_current=False) as app:
        yield app


@pytest.fixture(scope="module")
def times(app):
    return times_of(app)


def nested(depth: int) -> Any:
    return json.loads("[" * depth + "]" * depth)


def delivery(body: Any = b"", headers: Any = None, **more: Any) -> Delivery:
    given: dict[str, Any] = {
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "properties": {},
        "exchange": "",
        "routing_key": "celery",
        "redelivered": False,
        "pid": 1,
        **more,
    }
    return Delivery(body=body, headers={} if headers is None else headers, **given)


@pytest.mark.parametrize(
    ("headers", "payload"),
    [
        ({}, GOOD_BODY),
        ({}, ([1], {}, None)),
        ({}, [[], {}, {}]),
        ({}, [(), {}, {"chord": {"task": "a"}, "errbacks": [{"task": "b"}], "anything": 1}]),
        ({"eta": "2001-01-01T00:00:00"}, GOOD_BODY),
        ({"eta": "2031-01-01T00:00:00+02:00"}, GOOD_BODY),
        ({"eta": datetime(2031, 1, 1, tzinfo=UTC)}, GOOD_BODY),
        ({"expires": "2031-01-01T00:00:00Z"}, GOOD_BODY),
        ({"timelimit": [30, 10.5]}, GOOD_BODY),
        ({"timelimit": None}, GOOD_BODY),
        ({"shadow": "other"}, GOOD_BODY),
        ({"stamped_headers": ["customer"], "stamps": {"customer": ["7"]}}, GOOD_BODY),
        ({"odd": nested(MOST_DEPTH)}, GOOD_BODY),
        ({"id": "an id with \u00fc"}, GOOD_BODY),
        ({}, {"args": [1], "kwargs": {}}),
    ],
)
def test_what_celery_runs_passes(times, headers, payload) -> None:
    assert flaw_of({**GOOD_HEADERS, **headers}, payload, times) is None


def test_a_message_of_protocol_1_passes(times) -> None:
    body: Any = {"task": "shop.charge", "id": "task-1", "args": [1], "kwargs": {}, "eta": None, "chord": None}

    assert flaw_of({}, body, times) is None
    assert flaw_of({}, {"task": "shop.charge", "id": "task-1"}, times) is None


@pytest.mark.parametrize(
    ("headers", "payload", "reason", "says"),
    [
        (None, GOOD_BODY, "not_a_task", "nothing"),
        ([1], GOOD_BODY, "not_a_task", "list"),
        ({}, GOOD_BODY, "not_a_task", "name a task"),
        ({}, None, "not_a_task", "name a task"),
        ({}, {"hello": 1}, "not_a_task", "name a task"),
        (GOOD_HEADERS, None, "malformed", "nothing"),
        (GOOD_HEADERS, "args", "malformed", "str"),
        (GOOD_HEADERS, [[], {}], "malformed", "2 parts"),
        (GOOD_HEADERS, [[], {}, {}, {}], "malformed", "4 parts"),
        (GOOD_HEADERS, {"kwargs": {}}, "malformed", "dict"),
        (GOOD_HEADERS, [None, {}, {}], "malformed", "arguments are nothing"),
        (GOOD_HEADERS, [{}, {}, {}], "malformed", "arguments are a dict"),
        (GOOD_HEADERS, [[], None, {}], "malformed", "keyword arguments are nothing"),
        (GOOD_HEADERS, [[], {1: 2}, {}], "malformed", "keyword arguments is a int"),
        (GOOD_HEADERS, [[], {}, "x"], "malformed", "embeds is a str"),
        (GOOD_HEADERS, [[], {}, {"chord": [1]}], "malformed", "chord"),
        (GOOD_HEADERS, [[], {}, {"chain": {"task": "a"}}], "malformed", "chain"),
        (GOOD_HEADERS, [[], {}, {"errbacks": [1]}], "malformed", "errbacks"),
        ({**GOOD_HEADERS, "task": ["a"]}, GOOD_BODY, "malformed", "name is a list"),
        ({**GOOD_HEADERS, "task": ""}, GOOD_BODY, "malformed", "name is empty"),
        ({**GOOD_HEADERS, "task": None}, GOOD_BODY, "malformed", "name is nothing"),
        ({**GOOD_HEADERS, "task": "\ud800"}, GOOD_BODY, "malformed", "name"),
        ({**GOOD_HEADERS, "id": {}}, GOOD_BODY, "malformed", "id is a dict"),
        ({**GOOD_HEADERS, "id": 5}, GOOD_BODY, "malformed", "id is a int"),
        ({**GOOD_HEADERS, "id": "\udfff"}, GOOD_BODY, "malformed", "id"),
        ({**GOOD_HEADERS, "eta": "soon"}, GOOD_BODY, "malformed", "soon"),
        ({**GOOD_HEADERS, "eta": 12345}, GOOD_BODY, "malformed", "eta"),
        ({**GOOD_HEADERS, "eta": "9999-12-31T23:59:59-23:00"}, GOOD_BODY, "malformed", "eta"),
        ({**GOOD_HEADERS, "eta": [1]}, GOOD_BODY, "malformed", "eta"),
        ({**GOOD_HEADERS, "eta": ""}, GOOD_BODY, "malformed", "eta"),
        ({**GOOD_HEADERS, "expires": ""}, GOOD_BODY, "malformed", "expires"),
        ({**GOOD_HEADERS, "expires": 12.5}, GOOD_BODY, "malformed", "expires"),
        ({**GOOD_HEADERS, "timelimit": 5}, GOOD_BODY, "malformed", "timelimit"),
        ({**GOOD_HEADERS, "timelimit": ["1", None]}, GOOD_BODY, "malformed", "timelimit"),
        ({**GOOD_HEADERS, "timelimit": [float("nan"), None]}, GOOD_BODY, "malformed", "timelimit"),
        ({**GOOD_HEADERS, "timelimit": [10**400, None]}, GOOD_BODY, "malformed", "timelimit"),
        ({**GOOD_HEADERS, "shadow": {}}, GOOD_BODY, "malformed", "shadow"),
        ({**GOOD_HEADERS, "stamped_headers": "a"}, GOOD_BODY, "malformed", "stamps"),
        ({**GOOD_HEADERS, "stamped_headers": [[1]]}, GOOD_BODY, "malformed", "stamps"),
        ({**GOOD_HEADERS, "odd": nested(MOST_DEPTH + 2)}, GOOD_BODY, "malformed", "nested"),
        ({**GOOD_HEADERS, 7: 1}, GOOD_BODY, "malformed", "name of one"),
        ({}, {"task": "a", "args": []}, "malformed", "no id"),
        ({}, {"task": "a", "id": "1", "kwargs": None}, "malformed", "keyword"),
        ({}, {"task": "a", "id": "1", "eta": "soon"}, "malformed", "soon"),
        ({"odd": nested(60)}, {"task": "a", "id": "1"}, "malformed", "nested"),
    ],
)
def test_what_would_break_a_worker_is_named(times, headers, payload, reason, says) -> None:
    flaw = flaw_of(headers, payload, times)

    assert flaw is not None
    assert flaw.reason == reason
    assert says in flaw.text


def test_a_flaw_quotes_no_argument(times) -> None:
    for payload in (["hunter2", {}, {}], [[], "hunter2", {}], "hunter2", [[], {}, {"chord": "hunter2"}]):
        flaw = flaw_of(GOOD_HEADERS, payload, times)
        assert flaw is not None
        assert "hunter2" not in flaw.text


def test_depth_is_counted_without_recursion() -> None:
    assert not is_too_deep(nested(MOST_DEPTH))
    assert is_too_deep(nested(900))
    assert not is_too_deep([[]] * 10_000)


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff", b"[1", b'{"a": 1}', "text", None, {"a": [1]}, 5, memoryview(b"x"), b"[" * 100_000],
)
@pytest.mark.parametrize("headers", [None, [1], "h", {}, {"task": ["a"]}, {"id": 7}, {"x": nested(500)}])
def test_any_message_has_a_letter_that_goes_over_the_wire(app, body, headers) -> None:
    raw = delivery(body, headers)

    made = raw_letter(app, raw, reason=Reason.MALFORMED, error="no good", worker="w@h")

    assert load_letter(dump_letter(made)) == made
    assert made.reason == "malformed"
    assert made.last_attempt.message == "no good"
    if isinstance(body, bytes):
        assert made.payload.body == body
    if headers == [1]:
        assert json.loads(made.payload.properties[ODD_HEADERS]) == [1]


def test_a_message_without_an_id_has_the_same_name_at_each_delivery_and_another_for_each_publish() -> None:
    def named(headers: Any, published: str) -> str:
        about = {"delivery_info": {"published": published}, "delivery_tag": str(random.random())}
        return read(delivery(b"{}", headers, properties=about), JSON).task_id

    assert named({"a": 1}, "p1") == named({"a": 1, "redelivered": True, "x-delivery-count": 2}, "p1")
    assert named({"a": 1}, "p1") != named({"a": 1}, "p2")


def deeper_than_the_stack() -> Any:
    value: Any = ["the end"]
    for _ in range(5_000):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize(
    "more",
    [
        {"headers": {"x": deeper_than_the_stack()}},
        {"content_type": deeper_than_the_stack()},
        {"properties": {"delivery_info": {"published": deeper_than_the_stack()}}},
    ],
    ids=["headers", "content type", "published"],
)
def test_a_message_that_is_nested_deeper_than_the_stack_has_a_letter_and_one_name(app, more) -> None:
    first, again = (
        raw_letter(app, delivery(b"{}", **more), reason=Reason.MALFORMED, error="no good", worker="w@h")
        for _ in range(2)
    )

    assert first.task_id == again.task_id
    assert first.task_id.startswith("message-")
    assert load_letter(dump_letter(first)) == first


def test_messages_that_differ_far_down_have_different_names() -> None:
    def named(end: str) -> str:
        value: Any = [end]
        for _ in range(5_000):
            value = [value]
        return read(delivery(b"{}", {"x": value}), JSON).task_id

    assert named("a") != named("b")


def test_a_place_that_is_no_text_does_not_raise() -> None:
    info = {"exchange": deeper_than_the_stack(), "routing_key": 7}

    assert delivery_of(Message(body="", delivery_info=info)).exchange == ""


def test_a_body_of_a_type_that_is_not_accepted_is_not_decoded() -> None:
    body = b"cos\nsystem\n(S'true'\ntR."

    found = read(delivery(body, content_type="application/x-python-serialize"), JSON)

    assert not found.is_decoded


def test_secrets_of_a_readable_body_are_taken_out_of_the_text_of_the_error(app, times) -> None:
    body = json.dumps([[], {"password": "hunter2"}, {}])

    made = raw_letter(
        app,
        delivery(body, GOOD_HEADERS),
        reason=Reason.MALFORMED,
        error=ValueError("cannot log in with hunter2"),
        worker="w@h",
    )

    assert "hunter2" not in made.last_attempt.message + made.last_attempt.traceback


def test_only_what_has_its_shape_is_told_of_a_canvas() -> None:
    assert embedded_of(None) == {}
    assert embedded_of({"chord": [1], "chain": {"a": 1}, "errbacks": [{"task": "a"}, 5]}) == {
        "errbacks": [{"task": "a"}]
    }


def anything(chance: random.Random, depth: int = 0) -> Any:
    """A value as a decoder may return it."""
    kinds: list[Any] = [
        lambda: None,
        lambda: chance.choice([True, False, 0, -1, 7, 2**70, float("nan"), float("inf"), 1e308, 0.5]),
        lambda: chance.choice(["", "a", "shop.charge", "2030-01-01T00:00:00", "\ud800", "\x00", "x" * 300]),
        lambda: chance.choice([b"", b"\xff", b"{}"]),
        lambda: datetime(2030, 1, 1, tzinfo=UTC),
    ]
    if depth < 4:
        names = [*GOOD_HEADERS, "args", "kwargs", "chord", "chain", "errbacks", "callbacks", "x", 7, None]
        kinds += [
            lambda: [anything(chance, depth + 1) for _ in range(chance.randrange(5))],
            lambda: {chance.choice(names): anything(chance, depth + 1) for _ in range(chance.randrange(7))},
        ] * 3
    return chance.choice(kinds)()


@pytest.mark.parametrize("seed", range(8))
def test_no_message_makes_intake_raise(app, times, seed) -> None:
    chance = random.Random(seed)
    for _ in range(400):
        headers = anything(chance)
        if isinstance(headers, dict) and chance.random() < 0.7:
            headers = {**GOOD_HEADERS, **headers}
        payload = anything(chance) if chance.random() < 0.5 else [anything(chance) for _ in range(3)]
        flaw = flaw_of(headers, payload, times)
        assert flaw is None or isinstance(flaw.text, str)
        try:
            body = json.dumps(payload).encode()
        except (TypeError, ValueError):
            body = repr(payload).encode("utf-8", "backslashreplace")
        raw = delivery(body, headers, properties=anything(chance), content_type=anything(chance))
        made = raw_letter(app, raw, reason=Reason.MALFORMED, error="no good", worker="w@h")
        assert load_letter(dump_letter(made)).payload.body == body


def test_a_message_that_passes_can_be_made_a_request(app, times) -> None:
    """The claim of `shape`: what passes raises nothing in Celery's request but what Celery catches."""
    from celery.exceptions import InvalidTaskError
    from celery.worker.request import Request

    @app.task(name="shop.charge", shared=False)  # type: ignore[untyped-decorator]
    def charge(*args: Any, **kwargs: Any) -> None: ...

    chance = random.Random(5)
    passed = 0
    for _ in range(6000):
        found = anything(chance)
        headers = {**GOOD_HEADERS, **(found if isinstance(found, dict) else {})}
        headers["task"] = "shop.charge"
        body = [[anything(chance)], {"a": anything(chance)}, chance.choice([None, {}, anything(chance)])]
        if flaw_of(headers, body, times) is not None:
            continue
        passed += 1
        message: Any = Message(headers=headers, content_type="application/json")
        message._decoded_cache = body
        try:
            request = Request(message, app=app, task=charge, headers=headers)
            assert len(request.time_limits) == 2
            assert {request.name: 1, request.id: 1}
            assert request.revoked() in (True, False)
        except InvalidTaskError:
            raise AssertionError(f"it passed: {headers}") from None
    assert passed > 500
