"""Who a message is, whatever its producer wrote."""

from __future__ import annotations

from typing import Any

import pytest

from hardening.core.identity import KEY_HEADER, REPLAY_HEADER, Identity, identity_of, replay_task_id


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (float("inf"), 0),
        (float("nan"), 0),
        ("Infinity", 0),
        ([], 0),
        ({"a": 1}, 0),
        (-3, 0),
        ("2", 2),
        (10**30, 2**31 - 1),
    ],
)
def test_whatever_counts_the_replays_a_message_has_an_identity(number, expected) -> None:
    assert identity_of({KEY_HEADER: "k", REPLAY_HEADER: number}, "t") == Identity("k", expected, None)


def test_an_id_that_is_a_number_is_a_key_of_text() -> None:
    task_id: Any = 123

    assert identity_of({}, task_id) == Identity("123", 0, None)


def test_replays_of_different_works_numbers_or_bodies_have_different_task_ids() -> None:
    first = replay_task_id("k", 1, "digest")

    assert first == replay_task_id("k", 1, "digest")
    others = {replay_task_id("l", 1, "digest"), replay_task_id("k", 2, "digest"), replay_task_id("k", 1, "x")}
    assert len(others | {first}) == 4
