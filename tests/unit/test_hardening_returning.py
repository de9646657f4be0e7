"""A message that the broker does not take back is offered again; one that has gone back is left alone."""

from __future__ import annotations

from typing import Any

from hardening.returning import SHORTEST_WAIT_SECONDS, Returning


class Deliveries:
    """As kombu keeps them for Redis: `get` raises KeyError for a message that is not out."""

    def __init__(self, *tags: str) -> None:
        self.tags = tags

    def get(self, tag: str) -> str:
        if tag not in self.tags:
            raise KeyError(tag)
        return tag


class Channel:
    def __init__(self, qos: Deliveries) -> None:
        self.qos = qos


class Held:
    """A request and its message in one; `refusals` are raised, one at each rejection."""

    name, id, delivery_tag, app = "a task", "an id", "a tag", None
    connection_errors = (ConnectionError,)

    def __init__(self, *refusals: Exception, channel: Any = None) -> None:
        self.refusals = list(refusals)
        self.acknowledged = False
        self.channel = channel
        self.offers = 0
        self.message = self

    def reject(self, requeue: bool) -> None:
        assert requeue
        self.offers += 1
        if self.refusals:
            raise self.refusals.pop(0)


def offered(request: Held, turns: int) -> int:
    """How often the message is offered in so many turns, each when something may be due."""
    now = [0.0]
    returning = Returning(lambda: now[0])
    returning.keep(request, 0)
    for _ in range(turns):
        now[0] += SHORTEST_WAIT_SECONDS
        returning.return_due()
    assert len(returning) == (0 if request.acknowledged or request.offers < turns else 1)
    return request.offers


def test_what_the_broker_does_not_take_back_is_offered_until_it_does() -> None:
    request = Held(ValueError("full"), ValueError("full"), channel=Channel(Deliveries("a tag")))

    assert offered(request, 2) == 2
    assert not request.acknowledged
    request.refusals = [ValueError("full")]
    assert offered(request, 5) == 2 + 2
    assert request.acknowledged


def test_one_refusal_does_not_keep_the_others_back() -> None:
    now = [0.0]
    returning = Returning(lambda: now[0])
    refused, other = Held(ValueError("full")), Held()
    returning.keep(refused, 0)
    returning.keep(other, 0)

    now[0] = SHORTEST_WAIT_SECONDS
    returning.return_due()

    assert other.acknowledged
    assert len(returning) == 1


def test_a_lost_connection_to_redis_does_not_give_the_message_back_so_we_do() -> None:
    request = Held(ConnectionError("gone"), channel=Channel(Deliveries("a tag")))

    assert offered(request, 3) == 2


def test_a_broker_gives_the_messages_of_a_lost_connection_back_itself() -> None:
    assert offered(Held(ConnectionError("gone")), 3) == 1


def test_what_went_back_with_its_connection_is_not_given_back_twice() -> None:
    assert offered(Held(channel=Channel(Deliveries())), 3) == 0


def test_what_is_acknowledged_is_not_given_back() -> None:
    request = Held()
    request.acknowledged = True

    assert offered(request, 3) == 0
