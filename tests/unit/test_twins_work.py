"""Which messages are copies of one work: those of one publish, over its redeliveries and retries."""

from __future__ import annotations

from typing import Any

from hardening.core.identity import PUBLISHED_HEADER, REPLAY_HEADER, TWIN_HEADER, mark_publish
from hardening.twins.work import Work
from tests.helpers.twin_messages import Message


def headers(**more: Any) -> dict[str, Any]:
    made = {"id": "nightly", "task": "a task", **more}
    mark_publish(headers=made)
    return made


def test_the_same_id_and_arguments_sent_again_are_another_work() -> None:
    first, second = Message(None, headers=headers()), Message(None, headers=headers())

    assert Work.of(first) == Work.of(Message(None, headers=first.headers))
    assert Work.of(first).digest != Work.of(second).digest


def test_a_replay_that_is_published_twice_is_the_same_work() -> None:
    replay = {"hardening_key": "a key", REPLAY_HEADER: 1}
    first, second = Message(None, headers=headers(**replay)), Message(None, headers=headers(**replay))

    assert Work.of(first) == Work.of(second)


def test_a_retry_keeps_the_mark_of_its_message_and_a_child_does_not() -> None:
    first = headers()
    retry = {**first, "retries": 1}
    mark_publish(headers=retry)
    child = {**first, "id": "a child"}
    mark_publish(headers=child)

    assert retry[PUBLISHED_HEADER] == first[PUBLISHED_HEADER]
    assert child[PUBLISHED_HEADER] != first[PUBLISHED_HEADER]


def test_redis_tells_the_publish_of_foreign_producers_and_their_retries_carry_it_on() -> None:
    foreign = {"id": "nightly", "task": "a task"}
    one = Message(None, headers=foreign, delivery_info={"redelivered": True, "published": "tag 1"})
    two = Message(None, headers=foreign, delivery_info={"redelivered": True, "published": "tag 2"})
    retry = Message(None, headers={**foreign, TWIN_HEADER: Work.of(one).publish, "retries": 1})

    assert Work.of(one).digest != Work.of(two).digest
    assert Work.of(one).digest == Work.of(retry).digest
