"""A dependency that is down is asked by one task at a time, over all workers; nobody else pays for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from tests.helpers.wait import wait_until

from .stage import Sent, Stage

FIRST, LATER = 8, 25
FAILURES, LONGEST_WAIT = 5, 1.0  # As the project's settings have it.
CHILDREN, GREENLETS = 2, 4


@pytest.fixture(scope="module", params=["redis", "rabbitmq"])
def running(request: pytest.FixtureRequest, new_stage: Callable[..., Any]) -> Iterator[Stage]:
    """Two workers, one of each pool. What they share is in Redis, or with RabbitMQ in the database."""
    with new_stage(request.param) as stage:
        stage.worker(pool="prefork", concurrency=CHILDREN, wait=False)
        stage.worker(pool="gevent", concurrency=GREENLETS, wait=False)
        for worker in stage.workers:
            worker.ready()
        yield stage


@dataclass(frozen=True)
class Call:
    """One start of a task's body."""

    id: str
    retries: int
    at: float
    parked: int


def calls(stage: Stage, task: str) -> list[Call]:
    lines = [line.split()[1:] for line in stage.effects(f"{task} ")]
    return [Call(id, int(retries), float(at), int(parked)) for id, retries, at, parked in lines]


@pytest.mark.parametrize(
    ("task", "dependency"),
    [
        pytest.param("ask_supplier", "supplier", id="named-by-the-task"),
        pytest.param("ask_courier", "courier", id="named-by-a-rule"),
    ],
)
def test_of_a_dependency_that_is_down_few_are_called_none_is_lost_and_all_succeed(
    running: Stage, task: str, dependency: str
) -> None:
    stage = running

    def said(event: str) -> int:
        return stage.said(f"dependency {dependency}: {event}")

    first: list[Sent] = [stage.send(task) for _ in range(FIRST)]
    wait_until(lambda: said("opened"), 20, stage.logs)
    later: list[Sent] = [stage.send(task) for _ in range(LATER)]
    wait_until(lambda: said("still_down") >= 3, 30, stage.logs)
    probes, made = said("still_down"), calls(stage, task)
    stage.bring_up(dependency)
    for sent in (*first, *later):
        stage.state_of(sent, "SUCCESS", 40)

    # The failures that opened it, one call of each slot that had not heard of it, and the probes.
    assert len(made) <= FAILURES + CHILDREN + GREENLETS + probes + 1
    assert all(after.at - before.at >= LONGEST_WAIT for before, after in pairwise(made[-2:]))
    # Those that came later cost no attempt, neither when they were put back nor as a probe.
    late = [call for call in calls(stage, task) if call.id in {sent.id for sent in later}]
    assert {call.retries for call in late} == {0}
    last = {call.id: call.parked for call in late}
    assert min(last.values()) >= 1
    assert (said("opened"), said("recovered")) == (1, 1)
    assert stage.letters() == []
