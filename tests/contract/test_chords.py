"""A member of a chord is acknowledged once its chord goes on, whatever a process that died left of it."""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4

import pytest
import redis
from billiard.einfo import ExceptionInfo
from celery import chord, states
from celery.backends import redis as celery_redis
from celery.exceptions import Reject, WorkerLostError

from hardening.chords import LONGEST_SECONDS, PATIENCE_SECONDS, Standing, chords_for, standing_of
from hardening.private import CHORD_CLAIM_SCRIPT, CHORD_KEYS, celery_version
from hardening.testing.servers import RedisServer
from tests.helpers.hardened_apps import fetch, hardened_app, request_of, run, send

pytestmark = pytest.mark.usefixtures("isolated", "recording")
from_5_7 = pytest.mark.celery_since(5, 7)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def client(redis_server: RedisServer):
    with redis.Redis.from_url(redis_server.url_for(7)) as opened:
        opened.flushdb()
        yield opened


@pytest.fixture
def app(client, redis_server, monkeypatch):
    made = hardened_app(backend=redis_server.url_for(7))
    made.backend.on_task_call = lambda *_: {}  # Nobody waits for results.
    monkeypatch.setattr(chords_for(made), "_clock", Clock())
    yield made
    made.backend.client.close()


class Members:
    """A chord of two that was sent; its members' requests, and its body's messages."""

    def __init__(self, app, *, fails=False, **options):
        self.app = app
        self.queue = f"bodies-{uuid4().hex[:8]}"

        @app.task(name="member", shared=False, **options)
        def member(value):
            if fails and value == 2:
                raise ValueError(value)
            return value

        @app.task(name="body", shared=False)
        def body(values): ...

        chord([member.s(1), member.s(2)], app=app)(body.s().set(queue=self.queue))
        self.messages = [fetch(app), fetch(app)]
        self.first, self.last = (request_of(app, message) for message in self.messages)
        self.claim = self.key(".c")

    def key(self, ending):
        key = self.app.backend.get_key_for_group(self.first.group, ending)
        return key if isinstance(key, str) else key.decode()

    def again(self, index=1):
        """The request of the member's message when that comes back."""
        return request_of(self.app, redelivered(self.messages[index]))

    def dies_with_claim(self):
        """The last member's process is counted, and dies before it publishes the body."""
        script = self.app.backend._chord_part_return_script
        claimed = {}

        def dead(keys, args, client):
            claimed["answer"] = script(keys=keys, args=args, client=client)
            return [0, 0, 0, 0]

        self.app.backend._chord_part_return_script = dead
        self.app.backend.mark_as_done(self.last.id, 2, self.last._context)
        self.app.backend._chord_part_return_script = script
        assert claimed["answer"][3] == 1

    def bodies(self):
        found = []
        while (message := fetch(self.app, self.queue)) is not None:
            found.append(message.payload[0][0])
            message.ack()
        return found


def redelivered(message):
    message.delivery_info["redelivered"] = True
    return message


def turn(app, seconds=1.0):
    held: Any = chords_for(app)
    held._clock.now += seconds
    held.settle()


def lost(request):
    try:
        raise WorkerLostError("signal 9")
    except WorkerLostError:
        request.on_failure(ExceptionInfo(), return_ok=False)


def test_only_celery_with_the_claim_is_asked_about() -> None:
    assert hasattr(celery_redis, CHORD_CLAIM_SCRIPT) is (celery_version() >= (5, 7))


@from_5_7
def test_the_keys_are_those_of_celery_and_a_member_is_counted_once(app, client) -> None:
    members = Members(app)
    assert standing_of(members.first) is Standing.UNCOUNTED

    assert run(members.first) == ["ack"]
    before = client.zrange(members.key(".j"), 0, -1)
    app.backend.on_chord_part_return(members.first._context, states.SUCCESS, "another")

    assert {key.decode() for key in client.keys("*")} >= {members.key(e) for e in (".j", ".s", ".d")}
    assert client.zrange(members.key(".j"), 0, -1) == before
    assert standing_of(members.first) is Standing.SETTLED
    members.dies_with_claim()
    assert {key.decode() for key in client.keys("*")} >= {members.key(e) for e in CHORD_KEYS if e != ".t"}
    assert standing_of(members.last) is Standing.CLAIMED
    client.delete(members.claim)
    assert standing_of(members.last) is Standing.OPEN
    app.backend.on_chord_part_return(members.last._context, states.SUCCESS, None)
    assert standing_of(members.last) is Standing.SETTLED
    assert client.get(members.claim) == b"done"
    app.backend.on_chord_part_return(members.last._context, states.SUCCESS, None)
    assert members.bodies() == [[1, 2]]


@from_5_7
@pytest.mark.parametrize("ordered", [True, False])
def test_a_member_that_comes_back_waits_for_the_claim_of_the_dead_and_publishes_the_body(
    ordered, app, client
) -> None:
    app.conf.result_backend_transport_options = {"result_chord_ordered": ordered}
    members = Members(app)
    run(members.first)
    members.dies_with_claim()
    again = members.again()

    assert run(again) == []
    turn(app)
    assert (again.answers.given, members.bodies()) == ([], [])
    client.delete(members.claim)  # Its time is over.
    turn(app)

    assert again.answers.given == ["ack"]
    assert members.bodies() == [[1, 2]]
    assert len(chords_for(app)) == 0


@from_5_7
def test_a_claim_of_the_living_is_waited_for_and_nothing_is_published_twice(app, client) -> None:
    members = Members(app)
    run(members.first)
    members.dies_with_claim()
    again = members.again()
    run(again)

    client.delete(*(members.key(ending) for ending in CHORD_KEYS))  # It had published.
    turn(app)

    assert (again.answers.given, members.bodies()) == (["ack"], [])


@from_5_7
@pytest.mark.parametrize("claimed", [False, True])
def test_a_success_whose_child_died_before_the_body_was_published_is_counted_and_that_published(
    claimed, app, client
) -> None:
    members = Members(app)
    run(members.first)
    app.backend.store_result(members.last.id, 2, states.SUCCESS)
    if claimed:
        members.dies_with_claim()

    lost(members.last)
    assert (members.last.answers.given, members.bodies()) == ([], [])
    client.delete(members.claim)
    turn(app)

    assert members.last.answers.given == ["ack"]
    assert members.bodies() == [[1, 2]]


@from_5_7
def test_the_body_is_a_child_of_the_member_whoever_publishes_it(app) -> None:
    members = Members(app)
    run(members.first)
    app.backend.store_result(members.last.id, 2, states.SUCCESS)
    lost(members.last)
    turn(app)

    body = fetch(app, members.queue)

    assert body.headers["parent_id"] == members.last.id
    assert body.headers["root_id"] == members.last.root_id
    assert app.current_worker_task is None


@from_5_7
def test_what_celery_does_not_run_twice_is_counted_all_the_same(app) -> None:
    app.conf.worker_deduplicate_successful_tasks = True
    members = Members(app)
    run(members.first)
    app.backend.store_result(members.last.id, 2, states.SUCCESS)
    again = members.again()

    assert run(again) == []
    turn(app)

    assert again.answers.given == ["ack"]
    assert members.bodies() == [[1, 2]]


@from_5_7
@pytest.mark.parametrize("way", ["failure", "time limit", "rejected"])
def test_a_member_that_fails_ends_its_chord_too(way, app, client) -> None:
    members = Members(app, fails=way == "failure")
    run(members.first)
    members.dies_with_claim()
    request = members.again() if way == "failure" else members.last

    if way == "failure":
        run(request)
    elif way == "time limit":
        request.on_timeout(soft=False, timeout=3)
    else:
        request = members.again()
        try:
            raise Reject("no")
        except Reject:
            request.on_failure(ExceptionInfo(), return_ok=True)
    assert request.answers.given == []
    client.delete(members.claim)
    turn(app)

    assert request.answers.given == ["reject" if way == "rejected" else "ack"]
    assert members.bodies() == [[1, 2]]  # As it was counted first.


@from_5_7
def test_a_retry_of_a_member_that_came_back_is_not_counted(app, client) -> None:
    members = Members(app, retry_policy={"max_attempts": 3}, autoretry_for=(ValueError,), fails=True)
    run(members.first)
    again = members.again()

    run(again)
    turn(app)

    assert again.answers.given == ["ack"]
    assert client.zcard(members.key(".j")) == 1


@from_5_7
def test_a_chord_that_does_not_go_on_is_named_and_its_member_acknowledged(
    app, client, caplog, monkeypatch
) -> None:
    members = Members(app)
    run(members.first)
    members.dies_with_claim()
    client.delete(members.claim)
    monkeypatch.setattr(app.backend, "on_chord_part_return", lambda *_, **__: None)
    again = members.again()
    run(again)

    turn(app, PATIENCE_SECONDS - 1)
    assert again.answers.given == []
    turn(app, 1.5)

    assert again.answers.given == ["ack"]
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert again.group in errors[-1].getMessage()


@from_5_7
def test_a_backend_that_does_not_answer_is_waited_for_and_not_for_ever(app, client, monkeypatch) -> None:
    members = Members(app)
    run(members.first)
    again = members.again()
    asked: list[object] = []

    def refuse(request):
        asked.append(request)
        raise redis.ConnectionError("down")

    monkeypatch.setattr("hardening.chords.standing_of", refuse)
    run(again)
    turn(app, LONGEST_SECONDS - 1)
    assert (again.answers.given, len(asked)) == ([], 2)

    turn(app, 2)

    assert again.answers.given == ["ack"]


def test_other_messages_and_other_backends_are_not_asked_about(app, monkeypatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr("hardening.chords.standing_of", asked.append)
    members = Members(app)
    assert run(members.first) == ["ack"]
    assert run(members.last) == ["ack"]
    assert members.bodies() == [[1, 2]]

    in_memory = Members(hardened_app("memory"))
    assert run(in_memory.again(0)) == ["ack"]
    assert run(request_of(app, redelivered(send(app.tasks["member"], 1)))) == ["ack"]

    assert asked == []
