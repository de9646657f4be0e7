"""A MemoryError ends no worker: it ends a child, or elsewhere the task, and the message comes back."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from celery import Task

from hardening.capture import DELIVERY
from hardening.core.identity import RECOVERED_HEADER, Identity
from hardening.leases.envelope import as_recovered, as_redelivered
from hardening.poison.death import EX_RECYCLE, ExitForMemory, OutOfMemory
from hardening.poison.elsewhere import move
from hardening.poison.work import digest_of, digest_of_identity
from hardening.trace import error_of
from tests.helpers.hardened_apps import (
    EVENTS,
    LETTERS,
    fetch,
    hardened_app,
    process,
    request_of,
    run,
    send,
    trace_of,
)
from tests.helpers.poisoned import info_of

pytestmark = pytest.mark.usefixtures("isolated", "recording")


class NumpyLikeError(MemoryError):
    """As numpy's."""


@pytest.fixture
def app() -> Any:
    return hardened_app()


def greedy(app: Any, exc: BaseException | None = None, **options: Any) -> Any:
    @app.task(name="greedy", shared=False, **options)  # type: ignore[untyped-decorator]
    def task(*args: Any, **kwargs: Any) -> None:
        raise exc or NumpyLikeError("8 GB")

    return task


def in_child(request: Any) -> Any:
    """As if another process had received the message."""
    properties = request.request_dict["properties"]
    properties[DELIVERY] = properties[DELIVERY]._replace(pid=os.getpid() + 1)
    return request


def test_in_a_child_it_is_told_and_then_the_child_leaves_in_good_order(app) -> None:
    request = in_child(request_of(app, send(greedy(app))))

    with pytest.raises(ExitForMemory) as left:
        trace_of(request)

    assert left.value.code == EX_RECYCLE
    assert "NumpyLikeError: 8 GB" in left.value.text
    assert (EVENTS, LETTERS) == ([], [])


def test_elsewhere_it_is_told_to_celery_as_nothing_at_all(app) -> None:
    request = request_of(app, send(greedy(app)))

    failed, told, _ = trace_of(request)

    assert failed
    assert isinstance(error_of(told), OutOfMemory)
    assert EVENTS == []


def test_its_secrets_stay_secret(app) -> None:
    greedy(app, MemoryError("no room for hunter22")).apply_async((), {"password": "hunter22"})
    told = str(error_of(trace_of(request_of(app, fetch(app)))[1]))

    assert "no room for" in told
    assert "hunter22" not in told


@pytest.mark.parametrize("options", [{"acks_late": False, "early_ack": "of no use"}])
def test_a_task_that_does_not_come_back_leaves_a_letter_at_once(app, options) -> None:
    process(greedy(app, **options))

    assert [letter.reason for letter in LETTERS] == ["worker_lost"]
    assert "8 GB" in LETTERS[0].last_attempt.message
    assert "backend FAILURE" in EVENTS


def test_one_of_a_hook_before_the_body_is_the_same(app) -> None:
    class Hooked(Task):
        abstract = True

        def before_start(self, *args: Any) -> None:
            raise MemoryError("in a hook")

    request = request_of(app, send(greedy(app, base=Hooked)))
    run(request)

    assert request.answers.given == ["requeue"]
    assert LETTERS == []


def test_after_a_retry_was_sent_the_retry_lives_on(app) -> None:
    @app.task(name="both", bind=True, shared=False)  # type: ignore[untyped-decorator]
    def both(self: Any) -> None:
        self.retry(throw=False, countdown=0)
        raise MemoryError

    request = request_of(app, send(both))
    run(request)

    assert request.answers.given == ["ack"]
    assert fetch(app) is not None
    assert LETTERS == []


@pytest.mark.parametrize("loss", [SystemExit(3), KeyboardInterrupt()])
def test_a_child_that_says_that_it_leaves_is_a_death(app, loss) -> None:
    request = request_of(app, send(greedy(app)))
    request.on_failure(info_of(loss))

    assert request.answers.given == ["requeue"]


# The message


def envelope(**headers: Any) -> bytes:
    return json.dumps({"headers": headers, "properties": {"delivery_info": {}}, "body": ""}).encode()


def test_a_message_of_a_silent_worker_says_whose_it_was_and_how_often() -> None:
    once = as_recovered(envelope(id="an id"), "w1@host")
    twice = json.loads(as_recovered(once, "w2@host"))

    assert json.loads(once)["properties"]["delivery_info"]["redelivered"] is True
    assert json.loads(once)["headers"][RECOVERED_HEADER]["times"] == 1
    told = twice["headers"][RECOVERED_HEADER]
    assert (told["holder"], told["times"]) == ("w2@host", 2)


@pytest.mark.parametrize("message", [b"no json", b"[]", b"{}", b'{"headers": 1, "properties": 2}'])
def test_what_is_no_envelope_stays_as_it_is(message) -> None:
    assert as_recovered(message, "w1@host") == as_redelivered(message) == message


def test_whatever_others_put_in_the_header_is_counted_anew() -> None:
    told = json.loads(as_recovered(envelope(**{RECOVERED_HEADER: "x"}), "w"))["headers"][RECOVERED_HEADER]
    more = json.loads(as_recovered(envelope(**{RECOVERED_HEADER: {"times": "x"}}), "w"))

    assert told["times"] == more["headers"][RECOVERED_HEADER]["times"] == 1


def test_a_work_is_named_by_its_key_and_replay_and_by_nothing_else(app) -> None:
    message = send(greedy(app), 1, task_id="an id")
    same = send(app.tasks["greedy"], 2, task_id="another", headers={"hardening_key": "an id"})
    replay = send(app.tasks["greedy"], task_id="x", headers={"hardening_key": "an id", "hardening_replay": 1})

    assert digest_of(message) == digest_of(same) == digest_of_identity(Identity("an id", 0, None))
    assert digest_of(replay) == digest_of_identity(Identity("an id", 1, None)) != digest_of(message)


def test_a_message_that_is_moved_is_the_same_but_for_its_queue(app) -> None:
    message = send(greedy(app), 1, "two", task_id="an id", priority=3, headers={"own": "header"})

    assert move(app, message, "roomy")

    moved = fetch(app, "roomy")
    assert (moved.body, moved.headers["id"]) == (message.body, "an id")
    assert moved.headers["own"] == "header"
    assert moved.headers["hardening_moved"] == "roomy"
    assert moved.headers["hardening_suspect"]
    assert moved.headers["hardening_twin"]
    assert (moved.properties["priority"], moved.content_type) == (3, "application/json")
    assert fetch(app) is None
