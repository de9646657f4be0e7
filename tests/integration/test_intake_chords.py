"""A chord on Redis ends also where the body of a member cannot be decoded, if that is not the last one, and
no member of it counts twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery, states
from celery.app.task import Context

from hardening.capture import Delivery
from hardening.intake.errors import NotATask
from hardening.intake.results import end_result
from hardening.telling.outcome import ChordNotYet, Outcome


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    with Celery("chords", broker="memory://", backend=redis_url, set_as_current=False) as app:
        app.conf.task_always_eager = False

        @app.task(name="join", shared=False)
        def join(parts: Any) -> Any:
            return parts

        @app.task(name="add", shared=False)
        def add(*parts: Any) -> Any:
            return parts

        yield app


def raw(headers: Any, body: bytes, **more: Any) -> Delivery:
    return Delivery(
        body=body,
        content_type="application/json",
        content_encoding="utf-8",
        headers=headers,
        properties={},
        exchange="",
        routing_key="celery",
        redelivered=False,
        pid=1,
        **more,
    )


def begun(app: Celery, size: int) -> tuple[str, Any]:
    """A chord whose header was sent: its group, and the signature of its body."""
    group, body = str(uuid4()), app.signature("join", task_id=str(uuid4()))
    body["chord_size"] = size
    backend: Any = app.backend
    backend.set_chord_size(group, size)
    return group, body


def ended(app: Celery, group: str, body: Any) -> None:
    """Another member ends as it should."""
    backend: Any = app.backend
    context = Context(id=str(uuid4()), group=group, chord=body, task="add")
    backend.mark_as_done(context.id, 1, request=context)


def state(app: Celery, task_id: str) -> str:
    return str(app.backend.get_task_meta(task_id, cache=False)["status"])


def broken(group: str) -> Delivery:
    return raw({"task": "add", "id": str(uuid4()), "group": group}, b"[[1")


def test_a_member_whose_body_is_lost_fails_its_chord_when_another_one_ends_after_it(app) -> None:
    group, body = begun(app, 2)
    message = broken(group)

    end_result(app, message, NotATask("no JSON"))
    assert state(app, str(message.headers["id"])) == states.FAILURE
    ended(app, group, body)

    assert state(app, body.options["task_id"]) == states.FAILURE


def test_as_the_last_one_it_cannot_for_the_signature_of_the_body_is_lost_with_it(app) -> None:
    group, body = begun(app, 2)
    ended(app, group, body)
    message = broken(group)

    end_result(app, message, NotATask("no JSON"))

    assert state(app, str(message.headers["id"])) == states.FAILURE
    assert state(app, body.options["task_id"]) == states.PENDING


def test_a_member_whose_body_can_be_read_fails_its_chord_also_as_the_last_one(app) -> None:
    group, body = begun(app, 2)
    ended(app, group, body)
    embed = {"chord": dict(body), "errbacks": None, "callbacks": None, "chain": None}
    message = raw(
        {"task": "nobody", "id": str(uuid4()), "group": group}, json.dumps([[], {}, embed]).encode()
    )

    end_result(app, message, NotATask("not known"))

    assert state(app, body.options["task_id"]) == states.FAILURE


@pytest.mark.parametrize("ordered", [True, False])
def test_a_member_that_is_told_failed_twice_counts_once(app, ordered) -> None:
    app.conf.result_backend_transport_options = {"result_chord_ordered": ordered}
    group, body = begun(app, 3)
    embed = {"chord": dict(body), "errbacks": None, "callbacks": None, "chain": None}
    headers = {"task": "nobody", "id": str(uuid4()), "group": group, "group_index": 0}
    message = raw(headers, json.dumps([[], {}, embed]).encode())

    for text in ("not known", "not known", "still not known"):
        end_result(app, message, NotATask(text))
    ended(app, group, body)
    assert state(app, body.options["task_id"]) == states.PENDING, "one member has not ended"
    ended(app, group, body)

    assert state(app, body.options["task_id"]) == states.FAILURE


@pytest.mark.celery_since(5, 7)
def test_a_chord_whose_last_member_died_of_publishing_is_told_again_until_it_goes_on(app) -> None:
    """It was told with its chord's claim, and who told it died before the chord went on."""
    group, body = begun(app, 1)
    context = Context(id=str(uuid4()), group=group, chord=body, task="nobody")
    backend: Any = app.backend
    script = backend._chord_part_return_script

    def dead(**options: Any) -> list[int]:
        script(**options)
        return [-1, 0, 0, 0]

    backend._chord_part_return_script = dead
    backend.on_chord_part_return(context, states.FAILURE, NotATask("x"))
    backend._chord_part_return_script = script
    outcome = Outcome(app, context, NotATask("x"), states.FAILURE).result().chord()

    assert isinstance(outcome.tell(), ChordNotYet)
    backend.client.delete(backend.get_key_for_group(group, ".c"))

    assert outcome.tell() is None
    assert state(app, body.options["task_id"]) == states.FAILURE


@pytest.mark.parametrize(
    "headers",
    [
        [1],
        {"task": "add", "id": ["a"]},
        {"task": "add", "id": "a", "stamped_headers": ["b"], "stamps": [1], "group": {"b": 1}},
    ],
    ids=["a list", "an id that is a list", "stamps that are a list"],
)
def test_headers_of_a_wrong_kind_have_a_result_as_well(app, headers) -> None:
    app.conf.result_extended = True
    task_id = str(uuid4())
    if isinstance(headers, dict) and headers["id"] == "a":
        headers = {**headers, "id": task_id}
    message = raw(headers, b"[[], {}, {}]")._replace(properties={"correlation_id": task_id})

    end_result(app, message, NotATask("odd"))

    assert state(app, task_id) == states.FAILURE
