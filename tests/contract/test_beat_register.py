"""Every register keeps the promises of its port."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from beat_leader.register import Register, Role, Sign
from tests.helpers.beat_stores import KINDS, Stores, beat_stores


@pytest.fixture(params=KINDS)
def stores(request, tmp_path, django_db_blocker) -> Iterator[Stores]:
    with django_db_blocker.unblock(), beat_stores(request.param, request, tmp_path) as made:
        yield made


def sign(holder: str, role: Role = Role.STANDBY) -> Sign:
    return Sign(
        holder=holder,
        role=role,
        epoch=3,
        tick_seconds=0.25,
        lag_seconds=1.5,
        schedules=7,
        skew_seconds=-0.5,
        host="h",
        pid=5,
        started=12.5,
        version="1",
        problem="nul\x00 \ud800 \U0001f4a5",
    )


def test_the_latest_sign_of_each_beat_is_kept_with_the_time_of_the_store(stores) -> None:
    register: Register = stores.register
    assert isinstance(register, Register)
    before = register.now()
    assert abs(before - time.time()) < 5

    register.tell(replace(sign("a"), schedules=1))
    register.tell(sign("b"))
    first = register.tell(sign("a", Role.LEADER))
    second = register.tell(sign("c"))

    assert before <= first <= second <= register.now()
    found = register.signs()
    assert [each.holder for each in found] == ["a", "c", "b"]
    assert found[0] == replace(sign("a", Role.LEADER), at=found[0].at)
    assert found[0].at == pytest.approx(first, abs=0.001)
    register.leave("c")
    register.leave("never")
    assert [each.holder for each in register.signs()] == ["a", "b"]


def test_a_term_is_kept_once_and_its_first_end_stays(stores) -> None:
    register: Register = stores.register
    register.term_began(1, "a")
    register.term_began(2, "b")
    register.term_began(2, "thief")
    register.term_sent(2)
    first_sent = register.terms()[0].first_sent
    register.term_sent(2)
    register.term_ended(1, "lost")
    ended = register.terms()[1].ended
    register.term_ended(1, "resigned")
    register.term_ended(9, "lost")

    second, first = register.terms()
    assert (second.epoch, second.holder, second.ended, second.end) == (2, "b", None, "")
    assert first_sent is not None
    assert second.began <= first_sent == second.first_sent
    assert (first.epoch, first.holder, first.ended, first.end) == (1, "a", ended, "lost")
    assert first.first_sent is None
    assert [term.epoch for term in register.terms(limit=1)] == [2]


def test_a_leader_is_asked_to_resign_and_that_is_forgotten_with_its_term(stores) -> None:
    register: Register = stores.register
    register.term_began(1, "a")
    assert register.asked_to_resign(1) is None

    register.ask_to_resign(1, "root")

    assert register.asked_to_resign(1) == "root"
    assert register.asked_to_resign(2) is None
    register.term_ended(1, "resigned")
    assert register.asked_to_resign(1) is None


def test_the_latest_hundred_refusals_are_kept(stores) -> None:
    register: Register = stores.register
    for number in range(103):
        register.refused(number + 1, "a", f"decide \x00 {number}")

    found = register.refusals(since=0)

    assert [epoch for _, epoch, _, _ in found] == list(range(103, 3, -1))
    assert found[0][2] == "a"
    assert found[0][3].startswith("decide ")
    assert abs(found[0][0] - register.now()) < 5
    assert register.refusals(since=register.now() + 1) == []
