"""A gevent worker with a backlog is busy to its concurrency, and each message is acknowledged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest

from tests.helpers.wait import wait_until

from .stage import Stage

CONCURRENCY = 30
MESSAGES = 300
NAPPING = {"CELERY_IMPORTS": ["tests.system.project.napping"]}


def running_at_each_start(effects: list[str]) -> list[int]:
    """How many tasks ran just after each start, in order."""
    running, counts = 0, []
    for line in effects:
        running += 1 if line.startswith("start") else -1
        if line.startswith("start"):
            counts.append(running)
    return counts


def start_worker(stage: Stage, celery: dict[str, Any] | None = None, **options: Any) -> Any:
    return stage.worker(
        pool="gevent",
        concurrency=CONCURRENCY,
        TEST_CELERY=json.dumps({**NAPPING, **(celery or {})}),
        **options,
    )


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_a_backlog_keeps_the_greenlets_busy_and_each_message_is_acknowledged_once(
    broker: str, new_stage: Callable[..., Any]
) -> None:
    with new_stage(broker) as stage:
        for number in range(MESSAGES):
            stage.send("nap", number)

        worker = start_worker(stage)
        wait_until(lambda: len(stage.effects("end")) == MESSAGES, 60, stage.logs)
        stage.nothing_unacked()

        log = worker.logs()
        assert "Couldn't ack" not in log
        assert "MaxConnectionsError" not in log
        starts = Counter(stage.effects("start"))
        assert len(starts) == MESSAGES
        assert set(starts.values()) == {1}
        # A starving worker gets one message in each 100 ms once its first prefetch is used up.
        later = running_at_each_start(stage.effects())[2 * CONCURRENCY : -CONCURRENCY]
        assert median(later) >= 5


def test_too_few_connections_to_redis_stop_the_worker_with_both_values_and_the_remedy(
    new_stage: Callable[..., Any],
) -> None:
    with new_stage("redis") as stage:
        worker = start_worker(stage, {"CELERY_BROKER_TRANSPORT_OPTIONS": {"max_connections": 10}}, wait=False)

        assert worker.process.wait(timeout=30) == 78
        log = worker.logs()
        assert "CH012: broker_transport_options.max_connections is 10, at least 50 are needed." in log
        assert 'Remove "max_connections" from it, set at least 50, or lower --concurrency.' in log


def test_too_few_connections_are_no_matter_to_prefork(new_stage: Callable[..., Any]) -> None:
    with new_stage("redis") as stage:
        stage.worker(TEST_CELERY=json.dumps({"CELERY_BROKER_TRANSPORT_OPTIONS": {"max_connections": 10}}))
        stage.state_of(stage.send("succeed"), "SUCCESS")
