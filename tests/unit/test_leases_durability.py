"""What a worker says of a Redis that would lose messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import NoPermissionError

from hardening.core.findings import Level
from hardening.leases.durability import Durability, durability_findings

SAFE = {"aof_enabled": 1, "maxmemory": 4096, "maxmemory_policy": "noeviction"}


def said(**facts: Any) -> list[str]:
    return [each.what for each in durability_findings({**SAFE, **facts})]


def test_a_redis_that_keeps_everything_is_not_spoken_of() -> None:
    assert said() == []


def test_ch029_a_restart_that_loses_the_queues() -> None:
    (what,) = said(aof_enabled=0)

    assert what.startswith("Redis keeps no append-only file: a restart loses the queues")


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_ch029_eviction_that_takes_queues(policy: str) -> None:
    (what,) = said(maxmemory_policy=policy)

    assert what.startswith(f"Redis evicts keys when it is full ({policy})")


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"role": "master", "connected_slaves": 1}, True),
        ({"role": "master", "connected_slaves": 1, "min_slaves_good_slaves": 1}, False),
        ({"role": "master", "connected_slaves": 0}, False),
        ({"role": "slave", "connected_slaves": 1}, False),
    ],
)
def test_ch029_a_fail_over_that_may_lose_what_was_sent_last(facts: dict[str, Any], told: bool) -> None:
    assert [what.startswith("Redis takes messages that no replica has") for what in said(**facts)] == (
        [True] if told else []
    )


def test_without_a_limit_of_its_memory_redis_evicts_nothing() -> None:
    assert said(maxmemory_policy="allkeys-lru", maxmemory=0) == []


def test_it_stops_no_worker_and_what_redis_does_not_say_is_no_finding() -> None:
    assert durability_findings({}) == []
    assert {each.level for each in durability_findings({"aof_enabled": 0})} == {Level.WARNING}


class Client:
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def info(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_it_is_looked_up_once_also_where_the_first_look_was_refused(caplog: Any) -> None:
    client = Client(NoPermissionError("info"), {"aof_enabled": 0})
    consumer = SimpleNamespace(
        leased=True, holdings=SimpleNamespace(store=SimpleNamespace(client=client)), steps=[]
    )
    step = Durability(consumer)

    for _ in range(3):
        step.start(consumer)

    assert caplog.text.count("CH029") == 1
    assert client.answers == []
