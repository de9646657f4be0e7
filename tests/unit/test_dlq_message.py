"""Where a replay goes to, and what of its old life stays behind."""

from __future__ import annotations

from uuid import uuid4

import pytest

from dlq.errors import NoDestination
from dlq.message import Destination, destination_of, headers_for_replay
from hardening.core.identity import (
    ATTEMPTS_HEADER,
    DEPENDENCY_HEADER,
    FIRST_HEADER,
    MOVED_HEADER,
    OFFERS_HEADER,
    PARKED_HEADER,
    RECOVERED_HEADER,
    SUSPECT_HEADER,
    TWIN_HEADER,
)
from hardening.core.letter import Payload
from tests.helpers.dlq_letters import letter


@pytest.mark.parametrize(
    ("fields", "queue", "expected"),
    [
        ({"exchange": "", "routing_key": "q", "queue": "q"}, None, ("", "q", "q")),
        ({"exchange": "", "routing_key": "q", "queue": ""}, None, ("", "q", "q")),
        ({"exchange": "", "routing_key": "q", "queue": "q"}, "other", ("", "other", "other")),
        ({"exchange": "e", "routing_key": "a.b", "queue": "q"}, None, ("e", "a.b", "q")),
        ({"exchange": "e", "routing_key": "a.b", "queue": "q"}, "other", ("", "other", "other")),
        ({"exchange": "fan", "routing_key": "", "queue": "fan.q"}, None, ("", "fan.q", "fan.q")),
    ],
)
def test_the_destination(fields, queue, expected) -> None:
    found = destination_of(letter(**fields), queue=queue, is_fanout=lambda name: name == "fan.q")

    assert found == Destination(exchange=expected[0], routing_key=expected[1], queue=expected[2])


def test_an_entry_that_was_no_letter_has_no_way_back_but_can_be_sent_to_a_named_queue() -> None:
    unreadable = letter(
        routing_key="", queue="parked", payload=Payload(body=b"x", content_type=None, content_encoding=None)
    )

    with pytest.raises(NoDestination, match="name a queue"):
        destination_of(unreadable, queue=None)
    assert destination_of(unreadable, queue="q").routing_key == "q"


def test_a_replay_is_a_new_life_without_the_age_attempts_and_outages_of_the_old_one() -> None:
    old_life = {
        FIRST_HEADER: 1_767_225_600.5,
        ATTEMPTS_HEADER: "[]",
        DEPENDENCY_HEADER: "stripe",
        PARKED_HEADER: 7,
        RECOVERED_HEADER: {"holder": "w1", "times": 1, "at": 1.0},
        SUSPECT_HEADER: True,
        MOVED_HEADER: "roomy",
        TWIN_HEADER: "a publish",
        OFFERS_HEADER: "3 an-id",
    }

    headers = headers_for_replay(
        letter(headers={**old_life, "tenant": "acme"}), letter_id=uuid4(), task_id="new"
    )

    assert headers.keys().isdisjoint(old_life)
    assert (headers["tenant"], headers["retries"]) == ("acme", 0)
